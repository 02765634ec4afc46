package fit

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmeta"
)

// taints rejects pods that do not tolerate a taint of the node with the effect NoExecute.
// Static pods are not rejected. Taints with other effects are for schedulers.
func (p *Node) taints(pod *v1.Pod, _ []*v1.Pod) *Rejection {
	if p.Taints == nil || podmeta.IsStatic(pod) {
		return nil
	}
	for _, t := range p.Taints() {
		if t.Effect == v1.TaintEffectNoExecute && !slices.ContainsFunc(pod.Spec.Tolerations, func(o v1.Toleration) bool { return tolerates(&o, &t) }) {
			return &Rejection{Reason: "TaintToleration", Message: fmt.Sprintf("pod does not tolerate the node's taint %s", t.ToString())}
		}
	}
	return nil
}

// tolerates reports whether a toleration matches a taint. The operators Lt and Gt, an alpha
// feature of schedulers, match no taint.
func tolerates(o *v1.Toleration, t *v1.Taint) bool {
	if o.Effect != "" && o.Effect != t.Effect || o.Key != "" && o.Key != t.Key {
		return false
	}
	switch o.Operator {
	case v1.TolerationOpExists:
		return true
	case v1.TolerationOpEqual, "":
		return o.Key != "" && o.Value == t.Value // an empty key needs the operator Exists
	}
	return false
}

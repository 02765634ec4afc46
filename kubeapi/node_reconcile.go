package kubeapi

import (
	"maps"
	"runtime"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/node/status"
)

// annotationAttach reports that a controller attaches the node's volumes.
const annotationAttach = "volumes.kubernetes.io/controller-managed-attach-detach"

// taintUninitialized keeps pods away until an external cloud provider has seen
// the node.
const taintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// defaultLabels are the labels that get the agent's values on an existing Node as well.
var defaultLabels = []string{
	v1.LabelHostname, v1.LabelTopologyZone, v1.LabelTopologyRegion, v1.LabelFailureDomainBetaZone, v1.LabelFailureDomainBetaRegion,
	v1.LabelInstanceTypeStable, v1.LabelInstanceType, v1.LabelOSStable, v1.LabelArchStable,
	labelBetaOS, labelBetaArch, v1.LabelWindowsBuild,
}

const (
	labelBetaOS   = "beta.kubernetes.io/os"
	labelBetaArch = "beta.kubernetes.io/arch"
)

// ownLabels returns the default labels of a node; configured labels override them.
func ownLabels(hostname string, configured map[string]string) map[string]string {
	out := map[string]string{
		v1.LabelHostname: hostname, v1.LabelOSStable: runtime.GOOS, v1.LabelArchStable: runtime.GOARCH,
		labelBetaOS: runtime.GOOS, labelBetaArch: runtime.GOARCH,
	}
	maps.Copy(out, configured)
	return out
}

// reconcileNode sets the agent's fields of an existing node to those of a new one, and reports
// whether anything changed. The agent's fields are the annotation of attached volumes, the
// default labels, missing capacity, and the sizes of huge pages. If freshDevices is set, extended
// resources become 0, since the machine may have other devices than before. Taints and other
// labels are kept.
func reconcileNode(have, fresh *v1.Node, freshDevices bool) bool {
	changed := reconcileAttach(have, fresh)
	changed = reconcileLabels(have, fresh) || changed
	changed = reconcileMissing(have, fresh) || changed
	changed = freshDevices && zeroExtended(have) || changed
	return reconcileHugePages(have, fresh) || changed
}

func reconcileAttach(have, fresh *v1.Node) bool {
	want, has := fresh.Annotations[annotationAttach]
	got, had := have.Annotations[annotationAttach]
	if has == had && want == got {
		return false
	}
	if !has {
		delete(have.Annotations, annotationAttach)
		return true
	}
	if have.Annotations == nil {
		have.Annotations = map[string]string{}
	}
	have.Annotations[annotationAttach] = want
	return true
}

func reconcileLabels(have, fresh *v1.Node) bool {
	changed := false
	for _, name := range defaultLabels {
		want, has := fresh.Labels[name]
		got, had := have.Labels[name]
		switch {
		case !has || had && got == want:
		case want == "" && had:
			delete(have.Labels, name)
			changed = true
		case want != "":
			if have.Labels == nil {
				have.Labels = map[string]string{}
			}
			have.Labels[name] = want
			changed = true
		}
	}
	return changed
}

func reconcileMissing(have, fresh *v1.Node) bool {
	changed := false
	if have.Status.Capacity == nil && fresh.Status.Capacity != nil {
		have.Status.Capacity, changed = fresh.Status.Capacity.DeepCopy(), true
	}
	if have.Status.Allocatable == nil && fresh.Status.Allocatable != nil {
		have.Status.Allocatable, changed = fresh.Status.Allocatable.DeepCopy(), true
	}
	return changed
}

func zeroExtended(have *v1.Node) bool {
	changed := false
	for _, list := range []v1.ResourceList{have.Status.Capacity, have.Status.Allocatable} {
		for name, q := range list {
			if status.IsExtended(name) && !q.IsZero() {
				list[name], changed = *resource.NewQuantity(0, resource.DecimalSI), true
			}
		}
	}
	return changed
}

// reconcileHugePages makes the huge page sizes in have equal to the sizes in fresh: it adds,
// changes and removes entries. It reports whether it changed any.
func reconcileHugePages(have, fresh *v1.Node) bool {
	sync := func(to, from v1.ResourceList) bool {
		changed := false
		for name := range to {
			if _, supported := fresh.Status.Capacity[name]; status.IsHugePages(name) && !supported {
				delete(to, name)
				changed = true
			}
		}
		for name, q := range from {
			if got, had := to[name]; status.IsHugePages(name) && (!had || !equality.Semantic.DeepEqual(got, q)) {
				to[name], changed = q.DeepCopy(), true
			}
		}
		return changed
	}
	changed := false
	if have.Status.Capacity != nil {
		changed = sync(have.Status.Capacity, fresh.Status.Capacity)
	}
	if have.Status.Allocatable != nil {
		changed = sync(have.Status.Allocatable, fresh.Status.Allocatable) || changed
	}
	return changed
}

// taints returns the taints of a new node.
func taints(configured []v1.Taint, external bool) []v1.Taint {
	out := slices.Clone(configured)
	if external {
		out = append(out, v1.Taint{Key: taintUninitialized, Value: "true", Effect: v1.TaintEffectNoSchedule})
	}
	return out
}

// repairLabels corrects the labels of the operating system, and reports whether
// they were wrong.
func repairLabels(n *v1.Node) bool {
	changed := false
	for name, want := range map[string]string{v1.LabelOSStable: runtime.GOOS, v1.LabelArchStable: runtime.GOARCH} {
		if n.Labels[name] == want {
			continue
		}
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		n.Labels[name], changed = want, true
	}
	return changed
}

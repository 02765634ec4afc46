package volumemgr

import (
	"fmt"

	"github.com/nodewright/nodewright/podmeta"
)

// Here is the node against which the affinity of persistent volumes is matched.
type Here struct {
	Name   string
	Labels map[string]string
}

// reachable returns an error if the affinity of a persistent volume excludes this node. It is not
// called for mounted volumes, since labels may change while pods run.
func (m *Manager) reachable(spec *Spec) error {
	pv := spec.PersistentVolume
	if pv == nil || pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil || m.cfg.Node == nil {
		return nil
	}
	// The labels are read at each set-up, since an API server may send them after the start.
	node := m.cfg.Node()
	if podmeta.SelectsNode(pv.Spec.NodeAffinity.Required.NodeSelectorTerms, node.Name, node.Labels) {
		return nil
	}
	return fmt.Errorf("persistent volume %q is not for this node: no term of its nodeAffinity matches node %s", pv.Name, node.Name)
}

package volumemgr

import (
	"fmt"

	"github.com/nodewright/nodewright/podmeta"
)

// Here is the node as the affinity of persistent volumes sees it.
type Here struct {
	Name   string
	Labels map[string]string
}

// reachable fails if the volume is one that this node cannot have. What is
// mounted already is not asked about: labels may change while pods run.
func (m *Manager) reachable(spec *Spec) error {
	pv := spec.PersistentVolume
	if pv == nil || pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil || m.cfg.Node == nil {
		return nil
	}
	// The node is asked at each set-up and not once: its labels may come from an
	// API server after the start.
	node := m.cfg.Node()
	if podmeta.SelectsNode(pv.Spec.NodeAffinity.Required.NodeSelectorTerms, node.Name, node.Labels) {
		return nil
	}
	return fmt.Errorf("persistent volume %q is not for this node: no term of its nodeAffinity matches node %s", pv.Name, node.Name)
}

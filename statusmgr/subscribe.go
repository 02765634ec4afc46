package statusmgr

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Change is a change of a pod's status. Pod and Status are shared and must not be changed.
type Change struct {
	UID    types.UID
	Pod    *v1.Pod
	Status *v1.PodStatus
	// Added means that this is the pod's first status. Finished means that nothing of
	// the pod is left on the node. Removed means that the status was dropped; Pod and
	// Status are nil then.
	Added, Finished, Removed bool
}

// Subscribe calls fn for every later change of a status, in order, until cancel is called or Run
// ends. Run returns after fn has been called for all changes. fn is called in a goroutine of its
// own and may call the Manager. A slow fn delays no other subscriber. When cancel returns, one
// call of fn may still be under way.
func (m *Manager) Subscribe(fn func(Change)) (cancel func()) { return m.subs.Add(fn) }

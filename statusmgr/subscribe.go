package statusmgr

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Change is an accepted status. Pod and Status are shared: do not change them.
type Change struct {
	UID    types.UID
	Pod    *v1.Pod
	Status *v1.PodStatus
	// Added: it is the pod's first status. Finished: nothing is left of the
	// pod. Removed: the status was dropped; Pod and Status are nil.
	Added, Finished, Removed bool
}

// Subscribe calls fn for every status accepted from now on, in order, until
// cancel is called or Run ends, which waits for fn to have seen all of them.
// fn runs on a goroutine of its own and may call the manager; a slow fn delays
// nobody else. A call may be under way when cancel returns; no other follows.
func (m *Manager) Subscribe(fn func(Change)) (cancel func()) { return m.subs.Add(fn) }

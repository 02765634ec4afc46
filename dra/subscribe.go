package dra

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/subscription"
)

// Change names the drivers and pods that changed. A missed Change does no lasting
// harm: the next sync of a pod reads the current state.
type Change struct {
	// Drivers have a new connected instance; Lost have none any more.
	Drivers, Lost []string
	// Pods waited for one of Drivers, or have devices whose health changed: sync
	// them.
	Pods []types.UID
}

// merge makes one of two changes, for a slow reader. Every change passes through it,
// so that a name or a pod is in a Change once.
func merge(a, b Change) Change {
	return Change{Drivers: subscription.Union(a.Drivers, b.Drivers), Lost: subscription.Union(a.Lost, b.Lost), Pods: subscription.Union(a.Pods, b.Pods)}
}

// Subscribe calls fn for changes from now on, until cancel is called or Run ends.
// Changes during a call of fn are merged. fn runs on a goroutine of its own and may
// call the manager. A call may still run when cancel returns; no other follows.
func (m *Manager) Subscribe(fn func(Change)) (cancel func()) { return m.subs.Add(fn) }

// notify calls the subscribers if c is not empty. It does not wait for them, and
// may be called with Manager.mu held.
func (m *Manager) notify(c Change) {
	if len(c.Drivers)+len(c.Lost)+len(c.Pods) > 0 {
		m.subs.Publish(c)
	}
}

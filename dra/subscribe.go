package dra

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/subscription"
)

// Change names the drivers and pods that changed. If a Change is missed, the next sync of a pod
// still reads the current state.
type Change struct {
	// Drivers have a connected instance now. Lost have no connected instance any more.
	Drivers, Lost []string
	// Pods waited for one of Drivers, or have devices whose health changed. Sync them.
	Pods []types.UID
}

// merge combines two changes, so that a Change has each driver and each pod once. A subscriber that
// is slow gets its pending changes as one.
func merge(a, b Change) Change {
	return Change{Drivers: subscription.Union(a.Drivers, b.Drivers), Lost: subscription.Union(a.Lost, b.Lost), Pods: subscription.Union(a.Pods, b.Pods)}
}

// Subscribe calls fn with every change from now on, until cancel is called or Run ends. Changes
// during a call of fn are merged. fn runs on its own goroutine and may call the manager. When
// cancel returns, a call may still be running, but no other one follows.
func (m *Manager) Subscribe(fn func(Change)) (cancel func()) { return m.subs.Add(fn) }

// notify passes c to the subscribers, unless it is empty. It does not wait for them, and may be
// called with Manager.mu held.
func (m *Manager) notify(c Change) {
	if len(c.Drivers)+len(c.Lost)+len(c.Pods) > 0 {
		m.subs.Publish(c)
	}
}

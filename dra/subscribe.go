package dra

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/subscription"
)

// Change describes what became different. A subscriber that misses one loses nothing for
// good: the next sync of a pod finds the same.
type Change struct {
	// Drivers that came, and those of which no instance is connected any more.
	Drivers, Lost []string
	// Pods that waited for one of them, or have devices whose health changed:
	// they should be synced.
	Pods []types.UID
}

// merge makes one of two changes, for a slow reader. Every change passes through it,
// so that a name or a pod is in a Change once.
func merge(a, b Change) Change {
	return Change{Drivers: subscription.Union(a.Drivers, b.Drivers), Lost: subscription.Union(a.Lost, b.Lost), Pods: subscription.Union(a.Pods, b.Pods)}
}

// Subscribe calls fn for what changes from now on, until cancel is called or
// Run ends. Changes that come while fn is busy are put together. fn runs on a
// goroutine of its own and may call the manager. A call may be under way when
// cancel returns; no other follows.
func (m *Manager) Subscribe(fn func(Change)) (cancel func()) { return m.subs.Add(fn) }

// notify informs every subscriber, if there is something to tell. It does not wait
// for them, and may be called with Manager.mu held.
func (m *Manager) notify(c Change) {
	if len(c.Drivers)+len(c.Lost)+len(c.Pods) > 0 {
		m.subs.Publish(c)
	}
}

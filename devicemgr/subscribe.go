package devicemgr

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/subscription"
)

// Change names the resources and pods that changed, but not their new state. For a slow
// subscriber, several changes are merged to one. The subscriber reads the state from the manager.
type Change struct {
	// Resources had a change: devices were added or removed, or their number or health changed.
	// Pods that wait for one of them may be admitted again.
	Resources []string
	// Pods have devices whose health changed, which changes their status.
	Pods []types.UID
}

// merge returns the union of two changes, for a slow subscriber. It modifies neither, since other
// subscribers have them too.
func merge(a, b Change) Change {
	return Change{Resources: subscription.Union(a.Resources, b.Resources), Pods: subscription.Union(a.Pods, b.Pods)}
}

// Subscribe calls fn with changes from now on, until cancel is called or Run ends. Changes during
// a call of fn are merged, so that frequent changes do not overload it. fn runs on its own
// goroutine and may call the manager. When cancel returns, a call may still be running, but no
// other one follows.
func (m *Manager) Subscribe(fn func(Change)) (cancel func()) { return m.subs.Add(fn) }

package devicemgr

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/subscription"
)

// Change names the resources and pods that changed, not their new state: for a slow
// subscriber several changes are one Change, and the subscriber reads the state
// from the manager.
type Change struct {
	// Resources have devices that were added, removed, or changed in number or
	// health: pods that wait for one may be admitted again.
	Resources []string
	// Pods have devices whose health changed, which changes their status.
	Pods []types.UID
}

// merge returns the union of two changes, for a slow reader. It changes neither, since other
// subscribers have them too.
func merge(a, b Change) Change {
	return Change{Resources: subscription.Union(a.Resources, b.Resources), Pods: subscription.Union(a.Pods, b.Pods)}
}

// Subscribe calls fn for changes from now on, until cancel is called or Run ends.
// Changes during a call of fn are merged, so that a plugin that flaps does not
// overload it. fn runs on a goroutine of its own and may call the manager. A call
// may still run when cancel returns; no other follows.
func (m *Manager) Subscribe(fn func(Change)) (cancel func()) { return m.subs.Add(fn) }

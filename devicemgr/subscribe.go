package devicemgr

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/subscription"
)

// Change describes a change: where to look, and not the new state: a
// subscriber that is slow gets one Change for several, and asks the manager.
type Change struct {
	// Resources whose devices came, went, or changed in number or health:
	// pods that wait for one may be admitted again.
	Resources []string
	// Pods have devices whose health changed, so that their status did.
	Pods []types.UID
}

// merge makes one of two changes, for a slow reader. It changes neither, as other
// subscribers have them too.
func merge(a, b Change) Change {
	return Change{Resources: subscription.Union(a.Resources, b.Resources), Pods: subscription.Union(a.Pods, b.Pods)}
}

// Subscribe calls fn for what changes from now on, until cancel is called or
// Run ends. Changes that come while fn is busy are put together: a plugin that
// flaps costs its readers no more than they can take. fn runs on a goroutine
// of its own and may call the manager. A call may be under way when cancel
// returns; no other follows.
func (m *Manager) Subscribe(fn func(Change)) (cancel func()) { return m.subs.Add(fn) }

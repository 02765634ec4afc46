package dra

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// claim is one that pods of this node use. Manager.mu guards it, but for saving.
type claim struct {
	ClaimRef
	pods  map[types.UID]*podRef
	parts map[string]*part // by driver

	gen, saved uint64     // changes so far, and those that are stored
	saving     sync.Mutex // held while it is written, so that writes are in order
}

// podRef is the use of a claim by a pod. It is replaced, never changed.
type podRef struct {
	UID       types.UID `json:"uid"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name,omitempty"`
	Uses      []Use     `json:"uses,omitempty"` // in the pod's order

	given bool // all of it was prepared once, and that is stored
}

// part is what one driver has to do with a claim.
type part struct {
	prepared bool
	called   bool // the driver may have done something: it has to be undone
	devices  []Device
	op       *op // the call that is under way; nil: none
}

// op is a call to a driver, for some claims.
type op struct {
	done    chan struct{} // closed when it is over
	prepare bool
	errs    map[*claim]error // of those that are not done; read once it is over
}

func (c *claim) String() string { return c.Namespace + "/" + c.Name }

// prepared reports that every driver has prepared the claim.
func (c *claim) prepared() bool {
	for _, p := range c.parts {
		if !p.prepared {
			return false
		}
	}
	return true
}

// idle reports that no driver has anything to do with the claim.
func (c *claim) idle() bool {
	for _, p := range c.parts {
		if p.op != nil || p.called {
			return false
		}
	}
	return true
}

// alone reports that the pod uses the claim, and no other pod does.
func (c *claim) alone(uid types.UID) bool { return len(c.pods) == 1 && c.pods[uid] != nil }

func (c *claim) drivers() []string { return slices.Sorted(maps.Keys(c.parts)) }

// refer notes that a pod uses a claim. Manager.mu is held.
func (m *Manager) refer(c *claim, r *podRef) {
	if old := c.pods[r.UID]; old != nil && slices.Equal(old.Uses, r.Uses) {
		return
	}
	c.pods[r.UID] = r
	c.gen++
	if m.byPod[r.UID] == nil {
		m.byPod[r.UID] = map[*claim]bool{}
	}
	m.byPod[r.UID][c] = true
}

// unrefer notes that a pod does not use a claim any more. Manager.mu is held.
func (m *Manager) unrefer(c *claim, uid types.UID) {
	if c.pods[uid] == nil {
		return
	}
	delete(c.pods, uid)
	c.gen++
	delete(m.byPod[uid], c)
	if len(m.byPod[uid]) == 0 {
		delete(m.byPod, uid)
	}
}

// of lists the claims that a pod uses, by name. Manager.mu is held.
func (m *Manager) of(uid types.UID) []*claim {
	return slices.SortedFunc(maps.Keys(m.byPod[uid]), func(a, b *claim) int { return strings.Compare(a.String(), b.String()) })
}

// inUse counts the claims that are prepared, by driver, and all under "<any>".
func (m *Manager) inUse() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	count := map[string]int{anyDriver: 0}
	for name := range m.drivers {
		count[name] = 0
	}
	for _, c := range m.claims {
		some := false
		for name, p := range c.parts {
			if p.prepared {
				count[name]++
				some = true
			}
		}
		if some {
			count[anyDriver]++
		}
	}
	return count
}

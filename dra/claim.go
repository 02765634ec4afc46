package dra

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// The state of claims in memory. A claim goes through these steps: a pod refers to it, its record
// is stored, drivers prepare it, the last pod ends, drivers unprepare it, the record is removed.

// claim is a claim that pods of this node use. Manager.mu guards all fields except saving.
type claim struct {
	ClaimRef
	pods map[types.UID]*podRef
	// parts has an entry for every driver that has an allocated device of the claim. A claim
	// without devices has none, and counts as prepared.
	parts map[string]*part // by driver

	gen, saved uint64 // gen is the number of changes, saved the number of the last change that is stored
	// saving has a value during a write, so that writes stay in order. It is sent to before
	// Manager.mu is locked, which is not held during a write.
	saving chan struct{}
}

func newClaim(ref ClaimRef) *claim {
	return &claim{ClaimRef: ref, pods: map[types.UID]*podRef{}, parts: map[string]*part{}, saving: make(chan struct{}, 1)}
}

// podRef is the use of a claim by a pod. A podRef is replaced and never modified, so that a write
// of a record can read it without a lock. A podRef from a kubelet's file has only a UID.
type podRef struct {
	UID       types.UID `json:"uid"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name,omitempty"`
	Uses      []Use     `json:"uses,omitempty"` // in the pod's order

	given bool // all claims of the pod were prepared, and this is stored
}

// part is the state of a claim at one driver. prepared implies called. A part that is called but
// not prepared has failed, is in progress, or was prepared in an earlier boot.
type part struct {
	prepared bool
	called   bool // the driver may have done something that must be undone
	devices  []Device
	op       *op // the running call; nil if none
}

// op is one call to a driver, for some claims.
type op struct {
	done chan struct{} // closed when the call has ended
	// prepare is false for an Unprepare. An Unprepare that waits for a Prepare ignores the errors of
	// that Prepare, and the reverse.
	prepare bool
	errs    map[*claim]error // errors by claim; to be read after done
}

func (c *claim) String() string { return c.Namespace + "/" + c.Name }

// prepared reports whether every driver has prepared the claim. Manager.mu is held.
func (c *claim) prepared() bool {
	for _, p := range c.parts {
		if !p.prepared {
			return false
		}
	}
	return true
}

// idle reports whether no driver has anything to undo for the claim, and none is being called.
// Manager.mu is held.
func (c *claim) idle() bool {
	for _, p := range c.parts {
		if p.op != nil || p.called {
			return false
		}
	}
	return true
}

// alone reports whether no other pod uses the claim. It does not count the users, since an
// Unprepare of one pod may be repeated: if one other pod still uses the claim, the count would be
// 1. Manager.mu is held.
func (c *claim) alone(uid types.UID) bool { return len(c.pods) == 1 && c.pods[uid] != nil }

// drivers lists the claim's drivers by name, so that the order of CDI devices is always the same.
// Manager.mu is held.
func (c *claim) drivers() []string { return slices.Sorted(maps.Keys(c.parts)) }

// refer records that a pod uses a claim. The next save stores it. Manager.mu is held.
func (m *Manager) refer(c *claim, r *podRef) {
	// An equal reference is kept, so that a repeated Prepare writes nothing.
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

// unrefer records that a pod no longer uses a claim. The next save removes the record if no pod
// uses the claim. Manager.mu is held.
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

// inUse counts the prepared claims by driver, and all of them under "<any>". A claim of two
// drivers counts for both, so the sum may exceed the total.
func (m *Manager) inUse() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	count := map[string]int{anyDriver: 0}
	// Drivers without claims are listed with 0, so that their series do not disappear.
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

package dra

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// The state of claims in memory. In the life of a claim: pods refer to it, its
// record is stored, drivers are called, the last pod ends, drivers undo it, the
// record is removed.

// claim is a claim that pods of this node use. Manager.mu guards all fields but
// saving.
type claim struct {
	ClaimRef
	pods map[types.UID]*podRef
	// parts has every driver that a device of the claim was allocated of. A claim
	// without devices has none, and counts as prepared.
	parts map[string]*part // by driver

	gen, saved uint64 // number of changes so far, and of those that are stored
	// saving is locked before Manager.mu, which is not held during the write.
	saving sync.Mutex // held while it is written, so that writes are in order
}

// podRef is the use of a claim by a pod. It is replaced, never changed: a record that
// is being written shares it without a lock. Pods that a kubelet's file names have
// only a UID.
type podRef struct {
	UID       types.UID `json:"uid"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name,omitempty"`
	Uses      []Use     `json:"uses,omitempty"` // in the pod's order

	given bool // all of it was prepared once, and that is stored
}

// part is the state of a claim at one driver. prepared implies called; a claim that
// is called and not prepared has failed, is in progress, or was prepared in an
// earlier boot.
type part struct {
	prepared bool
	called   bool // the driver may have done something: it has to be undone
	devices  []Device
	op       *op // the running call; nil if none
}

// op is a call to a driver, for some claims.
type op struct {
	done chan struct{} // closed when it is over
	// prepare is false for an Unprepare. Errors of a Prepare do not matter to a
	// waiting Unprepare, and the other way round.
	prepare bool
	errs    map[*claim]error // of claims that failed; read once the call has ended
}

func (c *claim) String() string { return c.Namespace + "/" + c.Name }

// prepared reports that every driver has prepared the claim. Manager.mu is held.
func (c *claim) prepared() bool {
	for _, p := range c.parts {
		if !p.prepared {
			return false
		}
	}
	return true
}

// idle reports that no driver has to undo anything for the claim, and none is being
// called. Manager.mu is held.
func (c *claim) idle() bool {
	for _, p := range c.parts {
		if p.op != nil || p.called {
			return false
		}
	}
	return true
}

// alone reports whether the pod is the only one that uses the claim. It takes a pod
// instead of returning a count: a repeated Unprepare must not undo the claim of the
// one other pod that is left. Manager.mu is held.
func (c *claim) alone(uid types.UID) bool { return len(c.pods) == 1 && c.pods[uid] != nil }

// drivers lists the claim's drivers by name, so that records and CDI devices have the
// same order at each attempt. Manager.mu is held.
func (c *claim) drivers() []string { return slices.Sorted(maps.Keys(c.parts)) }

// refer records that a pod uses a claim. The change is stored by the next save.
// Manager.mu is held.
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

// unrefer records that a pod no longer uses a claim. The record of a claim without pods is
// removed by the next save. Manager.mu is held.
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

// inUse counts the claims that are prepared, by driver, and all under "<any>". A
// claim of two drivers counts for both, which is why the sum may be more than the
// total.
func (m *Manager) inUse() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	count := map[string]int{anyDriver: 0}
	// Drivers without claims are listed with 0, so that their series do not disappear
	// with the last claim.
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

package podworker

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// nameClaim says which static pod has a full name, and who waits for it.
type nameClaim struct {
	holder  types.UID   // "" if nobody
	waiting []types.UID // in the order of their first update
}

// queueName puts a static pod in line for its name.
func (m *Manager) queueName(r *record) {
	c := m.names[r.fullName()]
	if c == nil {
		c = &nameClaim{}
		m.names[r.fullName()] = c
	}
	c.waiting = append(c.waiting, r.uid)
}

func (m *Manager) holdsName(r *record) bool {
	c := m.names[r.fullName()]
	return c != nil && c.holder == r.uid
}

// claimName gives a static pod its name if nobody has it and nobody alive
// came before. Otherwise it says for whom the pod waits.
func (m *Manager) claimName(r *record) bool {
	c := m.names[r.fullName()]
	if c == nil || c.holder == r.uid {
		return true
	}
	if c.holder == "" {
		if first := m.firstInLine(c); first == "" || first == r.uid {
			c.holder = r.uid
			c.waiting = slices.DeleteFunc(c.waiting, func(u types.UID) bool { return u == r.uid })
			return true
		}
		r.waitFor = "a pod of the same name that came before it"
		return false
	}
	r.waitFor = "the end of the pod of the same name with UID " + string(c.holder)
	return false
}

// firstInLine drops those that will never start and returns the first other.
func (m *Manager) firstInLine(c *nameClaim) types.UID {
	for len(c.waiting) > 0 {
		w := m.records[c.waiting[0]]
		if w != nil && w.terminatingAt.IsZero() {
			return c.waiting[0]
		}
		c.waiting = c.waiting[1:]
	}
	return ""
}

// releaseName takes a pod out of line, or its name from it, and wakes the next
// in line.
func (m *Manager) releaseName(r *record) {
	if !r.static {
		return
	}
	c := m.names[r.fullName()]
	if c == nil {
		return
	}
	c.waiting = slices.DeleteFunc(c.waiting, func(u types.UID) bool { return u == r.uid })
	if c.holder == r.uid {
		c.holder = ""
	}
	if c.holder != "" {
		return
	}
	next := m.firstInLine(c)
	if next == "" {
		delete(m.names, r.fullName())
		return
	}
	m.wake(m.records[next])
}

// firstSyncLimit is how long a first sync keeps its place. What takes longer
// waits for a registry or a hung runtime, and not for this machine.
const firstSyncLimit = 10 * time.Second

// startQueue bounds how many pods are in their first sync.
type startQueue struct {
	free    int
	waiting []*record
}

// take gives r a place, or puts it in line.
func (q *startQueue) take(r *record) bool {
	if r.queued {
		return false
	}
	if q.free > 0 {
		q.free--
		r.place = true
		return true
	}
	r.queued = true
	q.waiting = append(q.waiting, r)
	return false
}

// releasePlace frees r's place and wakes the next in line that still wants it.
func (m *Manager) releasePlace(r *record) {
	if !r.place {
		return
	}
	r.place = false
	r.stopLimit()
	m.starts.free++
	for m.starts.free > 0 && len(m.starts.waiting) > 0 {
		next := m.starts.waiting[0]
		m.starts.waiting[0] = nil
		m.starts.waiting = m.starts.waiting[1:]
		next.queued = false
		if m.records[next.uid] == next && !next.running {
			m.wake(next)
		}
	}
}

// limitPlace takes the place of a first sync that takes too long.
func (m *Manager) limitPlace(r *record) {
	r.limit = time.AfterFunc(firstSyncLimit, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if r.place {
			r.begun = true
			m.releasePlace(r)
		}
	})
}

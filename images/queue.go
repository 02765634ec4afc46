package images

import (
	"slices"
	"sync"
	"time"

	"github.com/distribution/reference"
)

// queue limits running pulls, in total and for each registry. Pulls get slots in the order in
// which they came. A pull whose registry has reached its limit does not block those behind it
// from other registries. Methods do not block, and may be called with the Manager's lock held.
type queue struct {
	all, each int // limits in total and per registry; 0 means none

	// mu guards the fields below, and the closing of tickets.
	mu      sync.Mutex
	taken   int
	takenOf map[string]int // number of used slots, by registry
	waiting []*ticket      // waiting tickets, in order of arrival
}

// ticket is a slot, or a position in the queue.
type ticket struct {
	registry string
	ready    chan struct{} // closed when the ticket gets a slot
	since    time.Time     // when the ticket got a slot; valid after ready is closed
}

// newQueue returns an empty queue. all limits the running pulls, and each limits those from one
// registry. 0 means no limit.
func newQueue(all, each int) *queue {
	return &queue{all: all, each: each, takenOf: map[string]int{}}
}

// enter appends a ticket to the queue and returns at once; ticket.ready reports the slot. Every
// ticket must be returned with leave.
func (q *queue) enter(registry string) *ticket {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := &ticket{registry: registry, ready: make(chan struct{})}
	q.waiting = append(q.waiting, t)
	q.serve()
	return t
}

// leave returns a ticket. It must be called exactly once for each ticket.
func (q *queue) leave(t *ticket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiting, t); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		return // the ticket had no slot
	}
	q.taken--
	if q.takenOf[t.registry]--; q.takenOf[t.registry] == 0 {
		delete(q.takenOf, t.registry)
	}
	q.serve()
}

// serve gives free slots to waiting tickets, in order. mu must be held.
func (q *queue) serve() {
	q.waiting = slices.DeleteFunc(q.waiting, func(t *ticket) bool {
		if q.all > 0 && q.taken >= q.all || q.each > 0 && q.takenOf[t.registry] >= q.each {
			return false
		}
		q.taken++
		q.takenOf[t.registry]++
		t.since = time.Now()
		close(t.ready)
		return true
	})
}

// positions returns the positions of all waiting tickets, from 1.
func (q *queue) positions() map[*ticket]int {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := make(map[*ticket]int, len(q.waiting))
	for i, t := range q.waiting {
		out[t] = i + 1
	}
	return out
}

// registryOf returns the registry of an image, as host and port. It is docker.io for short names,
// and "" for invalid names.
func registryOf(image string) string {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return ""
	}
	return reference.Domain(named)
}

// Load returns how many images are being pulled, how many may be at a time (Config.Parallel), and
// how many wait for a slot, in total or for their registry. If limit is 0, there is no limit.
func (m *Manager) Load() (running, limit, waiting int) {
	q := m.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.taken, q.all, len(q.waiting)
}

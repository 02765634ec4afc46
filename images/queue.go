package images

import (
	"slices"
	"sync"
	"time"

	"github.com/distribution/reference"
)

// queue gives places to pulls: so many in all, and so many of one registry.
// First come, first served, but a pull whose registry has no place left lets
// those of other registries pass. It never starves: whoever passes takes no
// place that the one before could have had. The Manager's lock may be held when
// its methods are called; they do not block.
type queue struct {
	all, each int // 0 is no bound

	// mu guards all below, and the closing of tickets.
	mu      sync.Mutex
	taken   int
	takenOf map[string]int // by registry
	waiting []*ticket      // in the order in which they came
}

// ticket is a place, or a claim to one.
type ticket struct {
	registry string
	ready    chan struct{} // closed when it is a place
	since    time.Time     // when it became one; to be read after ready
}

// newQueue returns an empty queue with so many places in all and for each
// registry; 0 is any number.
func newQueue(all, each int) *queue {
	return &queue{all: all, each: each, takenOf: map[string]int{}}
}

// enter lines up. Each ticket has to be given back with leave. It does not
// wait: ready does.
func (q *queue) enter(registry string) *ticket {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := &ticket{registry: registry, ready: make(chan struct{})}
	q.waiting = append(q.waiting, t)
	q.serve()
	return t
}

// leave gives a place back, or the claim to one. Leaving twice would free
// somebody else's place.
func (q *queue) leave(t *ticket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiting, t); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		return // and no place is freer for it
	}
	q.taken--
	if q.takenOf[t.registry]--; q.takenOf[t.registry] == 0 {
		delete(q.takenOf, t.registry)
	}
	q.serve()
}

// serve gives free places to those who wait, in their order. It is called with
// mu held.
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

// positions are those of all who wait, from 1.
func (q *queue) positions() map[*ticket]int {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := make(map[*ticket]int, len(q.waiting))
	for i, t := range q.waiting {
		out[t] = i + 1
	}
	return out
}

// registryOf is the host that an image comes from, with its port. It is
// docker.io for short names, and "" for what is no name: those share one
// registry.
func registryOf(image string) string {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return ""
	}
	return reference.Domain(named)
}

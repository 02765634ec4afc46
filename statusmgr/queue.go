package statusmgr

import "k8s.io/apimachinery/pkg/types"

// class is one of the queues before the sink.
type class int

const (
	none   class = iota
	urgent       // phase, readiness or deletion changed
	others
	again // the last try failed: the next may take as long
	classes
)

// publishQueue holds the pods that the sink has something to be told of, and
// says whose turn it is.
type publishQueue struct {
	free      int
	busy      map[types.UID]bool // a call of the sink is under way
	waiting   [classes][]*entry  // an entry stands where its class says; its other places are stale
	trying    int                // calls of class again under way
	maxTrying int
	turn      int
}

// newPublishQueue makes one for so many calls at a time. Pods whose writes
// fail or hang have at most half of them, if there is more than one.
func newPublishQueue(parallel int) publishQueue {
	return publishQueue{free: parallel, busy: map[types.UID]bool{}, maxTrying: max(parallel/2, 1)}
}

func (q *publishQueue) put(e *entry) {
	c := others
	switch {
	case e.failures > 0:
		c = again
	case e.urgent:
		c = urgent
	}
	if e.class == none || e.class == others && c == urgent {
		e.class = c
		q.waiting[c] = append(q.waiting[c], e)
	}
}

// next takes out the next entry and tells which queue it stood in; nil, if
// there is none. Of four turns, one is the others' first and one is for those
// that failed, so that a flood of transitions starves nobody.
func (q *publishQueue) next() (*entry, class) {
	order := [...]class{urgent, others, again}
	switch q.turn % 4 {
	case 2:
		order = [...]class{others, urgent, again}
	case 3:
		order = [...]class{again, urgent, others}
	}
	for _, c := range order {
		for len(q.waiting[c]) > 0 && (c != again || q.trying < q.maxTrying) {
			e := q.waiting[c][0]
			q.waiting[c][0] = nil
			q.waiting[c] = q.waiting[c][1:]
			if e.class == c {
				e.class = none
				q.turn++
				return e, c
			}
		}
	}
	return nil, none
}

func (q *publishQueue) begin(e *entry, c class) {
	q.free--
	q.busy[e.pod.UID] = true
	if c == again {
		q.trying++
	}
}

func (q *publishQueue) end(e *entry, c class) {
	delete(q.busy, e.pod.UID)
	q.free++
	if c == again {
		q.trying--
	}
}

package statusmgr

import "k8s.io/apimachinery/pkg/types"

// Who is next at the sink. The queue holds entries and no statuses: whatever is
// newest when the turn comes is written.

// class is one of the queues before the sink.
type class uint8

const (
	none   class = iota
	urgent       // phase, readiness or deletion changed
	normal
	retries // the last write failed: the next may take as long
	classes
)

// publishQueue holds the pods that have something to publish, in the order of
// their turns, and counts the free slots.
type publishQueue struct {
	free     int
	busy     map[types.UID]bool // a call of the sink is under way
	waiting  [classes][]*entry  // an entry stands in the queue of its class; elsewhere it is stale
	retrying int                // writes of class retries under way
	maxRetry int
	turn     int
}

// newPublishQueue returns an empty queue with parallel slots. Pods whose writes
// fail or hang have at most half of them, if there is more than one.
func newPublishQueue(parallel int) publishQueue {
	return publishQueue{free: parallel, busy: map[types.UID]bool{}, maxRetry: max(parallel/2, 1)}
}

// put queues e in c. One that is queued already stays, unless it became urgent. An
// entry that moves to urgent leaves its old place behind, which next skips.
func (q *publishQueue) put(e *entry, c class) {
	if e.class == none || e.class == normal && c == urgent {
		e.class = c
		q.waiting[c] = append(q.waiting[c], e)
	}
}

// next takes out the next entry, and returns the queue that it was in; nil if
// there is none. Of four turns, one prefers the normal queue and one the
// retries, so that a flood of transitions starves nobody.
func (q *publishQueue) next() (*entry, class) {
	order := [...]class{urgent, normal, retries}
	switch q.turn % 4 {
	case 2:
		order = [...]class{normal, urgent, retries}
	case 3:
		order = [...]class{retries, urgent, normal}
	}
	for _, c := range order {
		for len(q.waiting[c]) > 0 && (c != retries || q.retrying < q.maxRetry) {
			e := q.waiting[c][0]
			// For the collector: the slice shares its array with what has been
			// taken out.
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

// begin gives a slot to e; end takes it back, once, whatever became of the write.
func (q *publishQueue) begin(e *entry, c class) {
	q.free--
	q.busy[e.pod.UID] = true
	if c == retries {
		q.retrying++
	}
}

// end gives the slot of e back, by the UID: the entry itself may have been
// replaced.
func (q *publishQueue) end(e *entry, c class) {
	delete(q.busy, e.pod.UID)
	q.free++
	if c == retries {
		q.retrying--
	}
}

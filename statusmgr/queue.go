package statusmgr

import "k8s.io/apimachinery/pkg/types"

// Who is next at the sink. The queue holds entries and no statuses: whatever is
// newest when the turn comes is written.

// class is one of the queues of pods that wait for a write to the sink.
type class uint8

const (
	none   class = iota
	urgent       // phase, readiness or deletion changed
	normal
	retries // the last write failed, so that the next one may take long as well
	classes
)

// publishQueue holds the pods that have something to publish, in queues by class, and counts the
// free slots.
type publishQueue struct {
	free     int
	busy     map[types.UID]bool // pods with a call of the sink in flight
	waiting  [classes][]*entry  // by class; an element whose entry has another class now is outdated and skipped
	retrying int                // number of writes of class retries in flight
	maxRetry int
	turn     int
}

// newPublishQueue returns an empty queue with parallel slots. Pods whose last write failed use at
// most half of the slots, and at least one.
func newPublishQueue(parallel int) publishQueue {
	return publishQueue{free: parallel, busy: map[types.UID]bool{}, maxRetry: max(parallel/2, 1)}
}

// put adds e to the queue c. An entry that is queued already stays where it is, except that it
// moves from normal to urgent. Its old element stays in the queue and is skipped by next.
func (q *publishQueue) put(e *entry, c class) {
	if e.class == none || e.class == normal && c == urgent {
		e.class = c
		q.waiting[c] = append(q.waiting[c], e)
	}
}

// next removes and returns the next entry, and the queue that it was in. It returns nil if there
// is no entry. Urgent entries come first, but every fourth call prefers normal entries and every
// fourth call prefers retries, so that many urgent changes do not hold up the other pods for
// ever.
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

// begin gives a slot to e. Each begin is followed by exactly one end, whatever the result of the
// write is.
func (q *publishQueue) begin(e *entry, c class) {
	q.free--
	q.busy[e.pod.UID] = true
	if c == retries {
		q.retrying++
	}
}

// end frees the slot of e. The slot is found by the pod's UID, since the UID may have another entry
// by now.
func (q *publishQueue) end(e *entry, c class) {
	delete(q.busy, e.pod.UID)
	q.free++
	if c == retries {
		q.retrying--
	}
}

package volumemgr

import "time"

// slowAfter is when an operation gives up its slot, so that what hangs takes
// nothing from others.
const slowAfter = time.Second

// slots bound how many operations run at a time. Manager.mu guards them.
type slots struct {
	free  int
	queue []waker
}

// waker waits for a slot: a volume or a device. When its turn comes it decides
// afresh what to do, and may find nothing.
type waker interface{ turn() }

// slot is the right to run.
type slot struct{ given bool }

// take returns a slot, or nil after putting w into the queue, if it is not in
// it already.
func (s *slots) take(w waker, queued *bool) *slot {
	if s.free == 0 {
		if !*queued {
			*queued = true
			s.queue = append(s.queue, w)
		}
		return nil
	}
	s.free--
	return &slot{given: true}
}

// give returns a slot; it may be given back already.
func (s *slots) give(t *slot) {
	if !t.given {
		return
	}
	t.given = false
	s.free++
	for s.free > 0 && len(s.queue) > 0 {
		next := s.queue[0]
		s.queue[0] = nil
		s.queue = s.queue[1:]
		next.turn()
	}
}

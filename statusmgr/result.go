package statusmgr

import (
	"time"

	"github.com/nodewright/nodewright/internal/retry"
)

// The second half of the state machine: what follows from the result of a call of
// the sink. See step.go for the first.

// result takes a result of the write under way.
func (s *state) result(in input, delays *retry.Backoff, do *effects) {
	switch in.event {
	case onWrote, onGone:
		s.wrote(in, do)
		s.updated(delays, do)
	case onUpToDate:
		s.updated(delays, do)
	case onNoTarget:
		s.end(noTarget, delays, do)
	case onNotReclaimed:
		s.end(waiting, delays, do)
	// deleted keeps a later status of the pod from asking for the deletion again.
	case onDeleted:
		s.deleted = true
		s.end(idle, delays, do)
	// A timeout may hide a success: the sink's status is no longer known, so that
	// even a return to the old status is written.
	case onUpdateFailed:
		s.sink = uncertain
		s.end(backingOff, delays, do)
	case onDeleteFailed:
		s.end(backingOff, delays, do)
	}
}

// wrote notes that the sink has the version that was being written. What is newer
// than that is still news.
func (s *state) wrote(in input, do *effects) {
	s.published, s.mirrored = s.writing, in.mirrored
	s.sink, s.held = known, in.held
	if in.event == onGone {
		s.sink, s.held = gone, false
	}
	if !s.writingSince.IsZero() {
		s.writingSince = time.Time{}
		do.observe = true
	}
}

// updated continues after the update: with the deletion, if it is due and the
// sink has the newest status.
func (s *state) updated(delays *retry.Backoff, do *effects) {
	switch {
	case s.deletable() && s.version == s.writing:
		do.deletePod = true
	case s.held:
		s.end(waiting, delays, do)
	default:
		s.end(idle, delays, do)
	}
}

// end ends the write under way. After a failure the pod backs off; otherwise
// next gives way to another pass if one has to follow.
func (s *state) end(next stage, delays *retry.Backoff, do *effects) {
	do.save = true
	s.slow = false
	if !s.writingSince.IsZero() { // nothing was published
		s.since, s.writingSince = s.writingSince, time.Time{}
	}
	if s.stage == removed {
		return
	}
	if s.stage == rewriting && next != backingOff {
		next = idle
	}
	s.stage = next
	switch next {
	case backingOff:
		do.retry = delays.After(int(s.failures) + 1)
		do.spread = true
		s.failures++
		return
	case waiting:
		do.retry = delays.After(int(s.waits) + 1)
		s.waits++
	}
	s.failures = 0
}

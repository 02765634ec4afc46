package statusmgr

import (
	"time"

	"github.com/nodewright/nodewright/internal/retry"
)

// The state machine of one pod's publication: events in, effects out. Who delivers
// the events and carries out the effects is in publish.go; tests play histories of
// events without clock or goroutine.

// event is something that happens to a pod's publication.
type event uint8

const (
	onStart     event = iota // Run begins to publish
	onRestore                // a status of an earlier process was read
	onSet                    // a new status was accepted
	onRefresh                // no new status, but state.final or state.deletion changed, or state.unsure ended
	onDrift                  // another program changed the status that the sink has
	onRepublish              // Shown has changed
	onTimer                  // the retry timer fired
	onRelease                // the write that blocked the pod has ended
	onRemove                 // the pod was dropped
	onGrant                  // a slot is free for the pod
	onSlow                   // the write in flight takes long

	// The events below are results of the write in flight. The write has ended, unless the effect is
	// deletePod.
	onNoTarget     // there is no object to publish under
	onWrote        // the sink has the version being written
	onUpToDate     // there was nothing to write
	onGone         // the sink has no such pod
	onUpdateFailed // the update failed, but may have taken effect
	onDeleted      // the sink has deleted the pod, or did not have it
	onDeleteFailed
)

// input is an event with its arguments. The comment of a field names the events that have it.
type input struct {
	event    event
	final    bool      // onRestore, onSet, onRefresh, onDrift: the new state.final
	deletion bool      // for the same events, the new state.deletion
	urgent   bool      // onSet
	unsent   bool      // onRestore: the status was not published
	loaded   bool      // onRestore: the status that the sink has was loaded
	replaced bool      // onRepublish: there is another object to publish under
	withheld bool      // onWrote: the terminal phase was left out
	mirrored bool      // onWrote, onGone: the object is a mirror
	version  uint64    // onRestore, onSet
	now      time.Time // onSet
}

// effects is what the caller of step has to do. Most calls of step return none.
type effects struct {
	disarm    bool          // stop the retry timer
	save      bool          // update the stored value
	observe   bool          // the change made at state.writingSince (before the step) is published: observe its latency
	begin     bool          // make the calls of the sink
	deletePod bool          // the write in flight continues with the deletion
	retry     time.Duration // arm the retry timer; 0 leaves it as it is
	spread    bool          // add jitter to retry, so that pods that failed together do not retry together
	queue     class         // put the pod in this queue; none leaves it where it is
}

// step applies an event to s, and returns the effects. It depends on its arguments alone: it reads
// no clock, takes no lock and starts nothing.
func (s *state) step(in input, delays *retry.Backoff) (do effects) {
	switch in.event {
	case onStart:
		s.leave(inactive)
	case onRestore:
		s.restore(in)
	case onSet:
		s.set(in, &do)
	case onRefresh:
		s.final, s.deletion, s.unsure = in.final, in.deletion, false
	// published is 0, as if nothing had been: somebody wrote another status over
	// it.
	case onDrift:
		s.final, s.deletion, s.published, s.sink = in.final, in.deletion, 0, uncertain
		s.wake()
	case onRepublish:
		if in.replaced {
			s.published, s.writing = 0, 0 // a write under way may be to the old object
		}
		s.wake()
	// In any other stage the timer came too late.
	case onTimer:
		s.leave(backingOff)
	case onRelease:
		s.leave(blocked)
	case onRemove:
		do.save = true
		do.disarm = s.stage == backingOff
		s.stage = removed
	case onGrant:
		s.grant(&do)
	case onSlow:
		if s.busy() {
			s.slow = true
			do.save = true
		}
	default:
		s.result(in, delays, &do)
	}
	// The one place where a pod is queued, whatever the event was.
	if s.stage == idle && s.pending() {
		s.stage, do.queue = queued, s.class()
	}
	return do
}

// leave makes the stage idle if it is the given one.
func (s *state) leave(stage stage) {
	if s.stage == stage {
		s.stage = idle
	}
}

// wake makes a change take effect: a write in flight is followed by another one, and noTarget ends.
// It does not end the back-off after a failure, which protects the sink from too many calls.
func (s *state) wake() {
	switch s.stage {
	case writing:
		s.stage = rewriting
	case noTarget:
		s.stage = idle
	}
}

// restore applies a status of an earlier process. A status that was not published is urgent, since
// it may have waited for long.
func (s *state) restore(in input) {
	s.final, s.deletion, s.version, s.urgent = in.final, in.deletion, in.version, in.unsent
	s.unsure = in.unsent && !in.final
	if in.loaded {
		s.sink = known
	}
	if !in.unsent {
		s.published = in.version
	}
}

// set applies the event that the pod has a new status.
func (s *state) set(in input, do *effects) {
	if in.final {
		do.save = true
	}
	if s.stage == queued && in.urgent && !s.urgent {
		do.queue = urgent // the queue of retries keeps its own
	}
	s.final, s.deletion, s.version, s.unsure = in.final, in.deletion, in.version, false
	s.urgent = s.urgent || in.urgent
	if s.since.IsZero() {
		s.since = in.now
	}
	s.wake()
}

// grant begins a write in a free slot, unless there is nothing to publish any more.
func (s *state) grant(do *effects) {
	switch {
	case s.stage != queued:
	case !s.pending():
		s.stage = idle
	default:
		do.begin = true
		s.stage, s.writing, s.urgent = writing, s.version, false
		s.writingSince, s.since = s.since, time.Time{}
	}
}

// result applies a result of the write in flight.
func (s *state) result(in input, delays *retry.Backoff, do *effects) {
	switch in.event {
	case onWrote, onGone:
		s.wrote(in, do)
		s.updated(delays, do)
	case onUpToDate:
		s.updated(delays, do)
	case onNoTarget:
		s.end(noTarget, delays, do)
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

// wrote records that the sink has the version that was being written. A newer version is still to
// be published.
func (s *state) wrote(in input, do *effects) {
	s.published, s.mirrored = s.writing, in.mirrored
	s.sink, s.withheld = known, in.withheld
	if in.event == onGone {
		s.sink, s.withheld = gone, false
	}
	if !s.writingSince.IsZero() {
		s.writingSince = time.Time{}
		do.observe = true
	}
}

// updated continues after the update. It begins the deletion if that is due and the sink has the
// newest status, and otherwise ends the write.
func (s *state) updated(delays *retry.Backoff, do *effects) {
	if s.deletable() && s.version == s.writing {
		do.deletePod = true
		return
	}
	s.end(idle, delays, do)
}

// end ends the write in flight and changes the stage to next. If another write has to follow, the
// stage becomes idle instead, unless next is backingOff.
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
	if next == backingOff {
		do.retry = delays.After(int(s.failures) + 1)
		do.spread = true
		s.failures++
		return
	}
	s.failures = 0
}

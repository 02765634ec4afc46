package statusmgr

import "time"

// stage is the stage of the publication of a pod's status.
type stage uint8

const (
	inactive   stage = iota // Run has not begun, or there is no sink
	idle                    // there is nothing to publish; implies !state.pending
	blocked                 // a removed entry of the same UID is still being written
	queued                  // the pod waits for a slot
	writing                 // calls of the sink are being made
	rewriting               // as writing, and another write has to follow, for a newer status or after Republish
	backingOff              // the last write failed; the retry timer is armed
	noTarget                // Shown has no object or is not Confirmed; Republish or a newer status ends this stage
	removed                 // the pod was dropped; only the results of its last write are still expected
)

// knowledge is what is known about the status that the sink has.
type knowledge uint8

const (
	nothing   knowledge = iota // no status was published or loaded
	known                      // the sink has entry.sent
	uncertain                  // a failed write may have taken effect, or another program wrote a status
	gone                       // the sink does not have the pod
)

// state is the state of the publication of one pod's status. Only step changes it. The zero value
// is for a pod without a status.
type state struct {
	stage stage
	sink  knowledge
	// final reports that the phase is terminal or that nothing of the pod is left. Such a status
	// cannot be computed again after a crash.
	final bool
	// deletion reports that the pod's deletion was requested and nothing of the pod is left. It is
	// never set for a mirror pod, which its creator deletes.
	deletion bool

	urgent bool // phase, readiness or deletion changed since the last write
	slow   bool // the write in flight takes long

	// unsure reports that the newest status was stored before a restart and may be older than the
	// published one. It is never set for a final status.
	unsure bool

	withheld bool // the published status lacks its terminal phase because containers may still run
	mirrored bool // the sink's object is a mirror
	deleted  bool // the sink has deleted the pod

	failures int32 // writes that failed in a row

	version   uint64 // version of the newest status; different for every status of the Manager
	published uint64 // version that the sink has; 0 if the status has to be published in any case
	writing   uint64 // version being written; 0 if the write will not count as published

	since        time.Time // time of the oldest change for which no write has begun; zero if there is none
	writingSince time.Time // value of since when the write in flight began
}

// news reports whether the sink lacks the newest status.
func (s *state) news() bool { return s.version > s.published && !s.unsure }

// deletable reports whether the pod has to be deleted.
func (s *state) deletable() bool {
	return s.deletion && !s.deleted && !s.mirrored && s.sink != gone
}

// pending reports whether there is anything to publish.
func (s *state) pending() bool { return s.news() || s.deletable() }

// unsent reports whether the sink lacks a part of the status, even if that part must not be
// published yet.
func (s *state) unsent() bool { return s.pending() || s.withheld || s.unsure }

// busy reports whether a write is in flight.
func (s *state) busy() bool { return s.stage == writing || s.stage == rewriting }

// comparable reports whether the sink is expected to have entry.sent. If the sink has another
// status in this state, another program wrote it.
func (s *state) comparable() bool { return s.sink != nothing && !s.news() && !s.busy() }

// failing reports whether writes of the status fail or take long.
func (s *state) failing() bool { return s.failures > 0 || s.slow }

// class returns the queue in which the pod has to wait. A deletion is urgent.
func (s *state) class() class {
	switch {
	case s.failures > 0:
		return retries
	case s.urgent || s.deletable():
		return urgent
	default:
		return normal
	}
}

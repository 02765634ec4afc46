package statusmgr

import "time"

// stage is where a pod's status stands on its way to the sink.
type stage uint8

const (
	inactive   stage = iota // Run has not begun, or there is no sink
	idle                    // the sink has everything it can be given; implies !state.pending
	blocked                 // a removed entry of the same UID is still being written
	queued                  // waits for a slot
	writing                 // a slot is making the calls of the sink
	rewriting               // writing, and another pass has to follow: a newer status or Republish
	backingOff              // the last write failed; the retry timer is armed
	noTarget                // Shown has no object, or is not confirmed; Republish or a newer status ends it
	removed                 // dropped; only the results of its last write still arrive
)

// knowledge is how much is known of the status that the sink has.
type knowledge uint8

const (
	nothing   knowledge = iota // none was published or loaded
	known                      // entry.sent is what it has
	uncertain                  // a write failed that may have taken effect, or somebody else wrote
	gone                       // the sink found no such pod
)

// state is the publication of one pod's status, which step alone changes. Its
// zero value is that of a pod without a status.
type state struct {
	stage stage
	sink  knowledge
	// final: the phase is terminal or nothing of the pod is left. Nobody can
	// compute such a status again after a crash.
	final bool
	// deletion: the pod's deletion was requested and nothing of it is left. It
	// is never set for a mirror, which belongs to whoever created it.
	deletion bool

	urgent bool // phase, readiness or deletion changed since the last write
	slow   bool // the write under way takes long

	// unsure: the newest status was stored before a restart and may be older than the
	// published one. Final statuses never are.
	unsure bool

	withheld bool // the published status lacks its terminal phase, as containers may run
	mirrored bool // the sink's object is a mirror
	deleted  bool // the sink has deleted the pod

	failures int32 // writes that failed in a row

	version   uint64 // the newest status; no two are the same
	published uint64 // the version that the sink has; 0 if it has to be published anyhow
	writing   uint64 // the version being written; 0 if that will not count as published

	since        time.Time // of the oldest change that no write has begun for; zero if there is none
	writingSince time.Time // the same of the write under way
}

// news reports whether the sink lacks the newest status.
func (s *state) news() bool { return s.version > s.published && !s.unsure }

// deletable reports whether the pod has to be deleted.
func (s *state) deletable() bool {
	return s.deletion && !s.deleted && !s.mirrored && s.sink != gone
}

// pending reports whether there is anything to publish.
func (s *state) pending() bool { return s.news() || s.deletable() }

// unsent reports whether the sink lacks anything of the status, if only for now.
func (s *state) unsent() bool { return s.pending() || s.withheld || s.unsure }

// busy reports whether a write is under way.
func (s *state) busy() bool { return s.stage == writing || s.stage == rewriting }

// comparable reports whether the sink is expected to have entry.sent, so that
// anything else was written by somebody else.
func (s *state) comparable() bool { return s.sink != nothing && !s.news() && !s.busy() }

// failing reports whether writes of the status fail or take long.
func (s *state) failing() bool { return s.failures > 0 || s.slow }

// class is the queue that the pod belongs in. A deletion is urgent though it became
// due in an earlier write.
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

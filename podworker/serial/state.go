package serial

import "time"

// State is what the worker of one key is doing.
type State[K comparable] struct {
	Key      K
	Stage    Stage
	Activity Activity
	// Since is when the call in flight began. Without a call, Since is when the last call ended
	// or, before the first call, when the first update came.
	Since time.Time
	// Waiting reports that an update is pending.
	Waiting bool
	// NextAt is when the handler is called again without an update, and Reason says why. They are
	// zero and "" if the key only waits for an update.
	NextAt time.Time
	Reason string
	// Err is the last call's error, and Failures the number of failures in a row.
	Err      error
	Failures int
}

func (w *worker[K, U]) state() State[K] {
	return State[K]{
		Key: w.call.Key, Stage: w.life.stage, Activity: w.activity, Since: w.since, Waiting: w.inbox.fresh,
		NextAt: w.alarm.at, Reason: w.alarm.reason, Err: w.life.err, Failures: w.life.failures,
	}
}

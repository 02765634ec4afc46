package eviction

import (
	"time"

	"github.com/nodewright/nodewright/eviction/rank"
)

// The state of thresholds and figures between readings, as values with pure methods.

// watch is the state of one threshold.
type watch struct {
	met    bool
	acting bool      // met for its grace period: the node acts
	since  time.Time // first observed to be met
	last   time.Time // last observed to be met
	seen   time.Time // the time of the newest observation
	fresh  bool      // the last observation was newer than the one before
	obs    rank.Observation
}

// noted returns w after an observation, or after a failed reading if ok is false.
func (w watch) noted(t rank.Threshold, o rank.Observation, ok bool, now time.Time, transition time.Duration) watch {
	if !ok {
		// The known state stays for as long as the condition would.
		w.fresh = false
		if now.Sub(w.last) >= transition {
			w.met, w.acting = false, false
		}
		return w
	}
	// A figure without a time counts as new.
	w.fresh = o.Time.IsZero() || w.seen.IsZero() || o.Time.After(w.seen)
	w.seen, w.obs = o.Time, o
	// After an action, the threshold stays met until MinReclaim is available too: otherwise it
	// would be met again at once.
	if !t.Met(o) && !(w.acting && t.Unresolved(o)) {
		w.met, w.acting = false, false
		return w
	}
	if !w.met {
		w.since = now
	}
	w.met, w.last = true, now
	w.acting = now.Sub(w.since) >= t.Grace
	return w
}

// newerThan reports whether the observation was not made before floor. An observation without a
// time counts as new.
func (w watch) newerThan(floor time.Time) bool {
	return w.obs.Time.IsZero() || !w.obs.Time.Before(floor)
}

// lasting reports whether the threshold's condition is true: while the threshold is met, and for
// the transition period afterwards. Without that period, new pods would be scheduled and evicted
// in turn.
func (w watch) lasting(now time.Time, transition time.Duration) bool {
	return w.met || !w.last.IsZero() && now.Sub(w.last) < transition
}

// due returns the time at which the state changes without a new observation, or zero if only an
// observation can change it.
func (w watch) due(t rank.Threshold, transition time.Duration) time.Time {
	switch {
	case w.met && !w.acting:
		return w.since.Add(t.Grace)
	case !w.met && !w.last.IsZero():
		return w.last.Add(transition)
	default:
		return time.Time{}
	}
}

// trend predicts when a falling figure reaches its threshold.
type trend struct {
	at        time.Time
	available int64
	rate      float64 // decrease in units a second
}

// noted returns the trend after an observation. Its rate comes from the last two observations
// only, so that a sudden fall shows at once.
func (t trend) noted(o rank.Observation, now time.Time) trend {
	at := o.Time
	if at.IsZero() {
		at = now
	}
	d := at.Sub(t.at)
	if !t.at.IsZero() && d <= 0 {
		return t // nothing new
	}
	next := trend{at: at, available: o.Available}
	if !t.at.IsZero() {
		// Negative while the figure rises.
		next.rate = float64(t.available-o.Available) / d.Seconds()
	}
	return next
}

// left returns the time until the figure falls to level, at most limit.
func (t trend) left(level int64, limit time.Duration) time.Duration {
	if t.rate <= 0 {
		return limit
	}
	if s := float64(t.available-level) / t.rate; s < limit.Seconds() {
		return time.Duration(s * float64(time.Second))
	}
	return limit
}

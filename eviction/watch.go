package eviction

import (
	"time"

	"github.com/nodewright/nodewright/eviction/rank"
)

// What is remembered of thresholds and figures between looks, as values with pure
// methods.

// watch is what is remembered of one threshold. It is a value, and told the
// time.
type watch struct {
	met    bool
	acting bool      // met for as long as its grace: something is to be done
	since  time.Time // first observed to be met
	last   time.Time // last observed to be met
	seen   time.Time // the time of the newest observation
	fresh  bool      // the last observation was newer than the one before
	obs    rank.Observation
}

// noted is w after an observation, or after none could be made.
func (w watch) noted(t rank.Threshold, o rank.Observation, ok bool, now time.Time, transition time.Duration) watch {
	if !ok {
		// What was known holds for as long as the condition would.
		w.fresh = false
		if now.Sub(w.last) >= transition {
			w.met, w.acting = false, false
		}
		return w
	}
	// A figure without a time counts as new: its source has no cache.
	w.fresh = o.Time.IsZero() || w.seen.IsZero() || o.Time.After(w.seen)
	w.seen, w.obs = o.Time, o
	// Once acted upon, a threshold holds until the minimum to reclaim is there as
	// well: otherwise the next pod would be due a moment later.
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

// newerThan reports whether the observation was not made before floor. Whoever
// cannot say when a figure was read is believed.
func (w watch) newerThan(floor time.Time) bool {
	return w.obs.Time.IsZero() || !w.obs.Time.Before(floor)
}

// lasting reports whether the condition that the threshold stands for is on:
// without the time after, pods would be scheduled to the node again as soon as one
// has gone, and evicted in turn.
func (w watch) lasting(now time.Time, transition time.Duration) bool {
	return w.met || !w.last.IsZero() && now.Sub(w.last) < transition
}

// due is when time alone changes something about the threshold; zero if it
// does not.
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

// trend foresees when a figure that falls will be below its threshold.
type trend struct {
	at        time.Time
	available int64
	rate      float64 // units a second that it falls by
}

// noted is t after an observation. The rate is that between the last two: it has to
// follow a sudden fall, and an error costs one look too many.
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
		// Below 0 while the figure rises.
		next.rate = float64(t.available-o.Available) / d.Seconds()
	}
	return next
}

// left is how long the figure takes down to level, at most limit.
func (t trend) left(level int64, limit time.Duration) time.Duration {
	if t.rate <= 0 {
		return limit
	}
	if s := float64(t.available-level) / t.rate; s < limit.Seconds() {
		return time.Duration(s * float64(time.Second))
	}
	return limit
}

package podruntime

import (
	"hash/maphash"
	"time"
)

// Removals are remembered this long, and so many of them.
const (
	removedFor = 10 * time.Minute
	// A bound of memory, for a runtime that makes up new IDs all the time.
	removedMost = 8192
	sweepEvery  = time.Minute
)

// removals are when the sandboxes and containers of pods that are gone were
// removed. They are kept by hashes of their IDs, which cost a tenth of these.
type removals struct {
	// seed is of this process: nobody can choose IDs that collide.
	seed  maphash.Seed
	start time.Time
	// at has durations since start, by the monotonic clock, a third of the size
	// of times.
	at    map[uint64]time.Duration // since start
	swept time.Time
}

// newRemovals returns an empty record. Its methods must not overlap;
// runs.mu guards it.
func newRemovals(now time.Time) removals {
	return removals{seed: maphash.MakeSeed(), start: now, at: map[uint64]time.Duration{}, swept: now}
}

// when reports when an ID was removed, and whether that is remembered.
func (r *removals) when(id string) (time.Time, bool) {
	at, ok := r.at[maphash.String(r.seed, id)]
	return r.start.Add(at), ok
}

// add remembers that an ID was removed. Where there is no room, what was
// remembered first stays.
func (r *removals) add(id string, now time.Time) {
	h := maphash.String(r.seed, id)
	if _, ok := r.at[h]; ok || len(r.at) < removedMost {
		r.at[h] = now.Sub(r.start)
	}
}

// sweep forgets what is old, now and then: each time would cost as much as all
// removals of ten minutes together.
func (r *removals) sweep(now time.Time) {
	if now.Sub(r.swept) < sweepEvery {
		return
	}
	r.swept = now
	for h, at := range r.at {
		if now.Sub(r.start)-at > removedFor {
			delete(r.at, h)
		}
	}
	if len(r.at) == 0 {
		r.at = map[uint64]time.Duration{} // a map never shrinks
	}
}

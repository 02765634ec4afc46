package podruntime

import (
	"hash/maphash"
	"time"
)

// Removals are remembered this long, and so many of them.
const (
	removedFor  = 10 * time.Minute
	removedMost = 8192
	sweepEvery  = time.Minute
)

// removals are when the sandboxes and containers of pods that are gone were
// removed. They are kept by hashes of their IDs, which cost a tenth of these.
type removals struct {
	seed  maphash.Seed
	start time.Time
	at    map[uint64]time.Duration // since start
	swept time.Time
}

func newRemovals(now time.Time) removals {
	return removals{seed: maphash.MakeSeed(), start: now, at: map[uint64]time.Duration{}, swept: now}
}

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

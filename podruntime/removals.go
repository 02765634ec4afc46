package podruntime

import (
	"hash/maphash"
	"time"
)

// Limits of the record of removals.
const (
	removedFor = 10 * time.Minute
	// removedMost bounds the memory of the record: a faulty runtime may report new IDs without end.
	removedMost = 8192
	sweepEvery  = time.Minute
)

// removals is a record of when sandboxes and containers of removed pods were removed. Its keys are
// hashes of their IDs, which take a tenth of the memory of the IDs.
type removals struct {
	// seed is random for each process, so that nobody can choose IDs whose hashes collide.
	seed  maphash.Seed
	start time.Time
	// at has the times of removals, by the hash of the ID. Each is the time from start to the
	// removal by the monotonic clock, which takes a third of the memory of a time.Time.
	at    map[uint64]time.Duration // since start
	swept time.Time
}

// newRemovals returns an empty record. Its methods must not overlap;
// runs.mu guards it.
func newRemovals(now time.Time) removals {
	return removals{seed: maphash.MakeSeed(), start: now, at: map[uint64]time.Duration{}, swept: now}
}

// when returns when an ID was removed, and whether the record has the ID.
func (r *removals) when(id string) (time.Time, bool) {
	at, ok := r.at[maphash.String(r.seed, id)]
	return r.start.Add(at), ok
}

// add records that an ID was removed. A full record keeps its entries and drops the new one.
func (r *removals) add(id string, now time.Time) {
	h := maphash.String(r.seed, id)
	if _, ok := r.at[h]; ok || len(r.at) < removedMost {
		r.at[h] = now.Sub(r.start)
	}
}

// sweep drops entries older than removedFor. It does so at most once in sweepEvery, since it reads
// the whole record.
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

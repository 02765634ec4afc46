package stats

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

// cpuSample is the CPU time of a cgroup since its creation, in nanoseconds, and the
// time of the reading. The rate is computed from two samples of one cgroup.
type cpuSample struct {
	At    time.Time
	Total uint64
}

// errCounterReset means that a counter is less than in the sample before: the cgroup
// was removed, and another one was created at its path.
var errCounterReset = errors.New("the counter was reset")

// cpuRate returns the use between two samples, in nanocores: 1e9 is one fully busy
// processor.
func cpuRate(before, now cpuSample) (uint64, error) {
	d := now.At.Sub(before.At)
	switch {
	case d <= 0:
		return 0, fmt.Errorf("%v between two samples; want a positive duration", d)
	case now.Total < before.Total:
		return 0, errCounterReset
	}
	rate := float64(now.Total-before.Total) / float64(d) * 1e9
	if rate >= math.MaxUint64 {
		return 0, errCounterReset // no machine has so many processors
	}
	return uint64(rate), nil
}

// Limits of the time between two samples: below minWindow the rate would be noise. A
// sample older than maxWindow is not used any more, as in the kubelet.
const (
	minWindow = time.Second
	maxWindow = 10 * time.Minute
)

// rates remembers the last sample of each cgroup. The zero value is ready for use,
// from any goroutine. Keys are paths of cgroups, or ids of containers without one.
type rates struct {
	mu   sync.Mutex
	last map[string]lastRate
}

type lastRate struct {
	cpuSample
	rate *uint64 // nil after the first sample
}

// next stores a sample and returns the rate. It returns nil if the rate is not known yet. If the
// last sample is more recent than minWindow, next returns the last rate and does not store the
// new sample. Frequent readers therefore do not shorten the window of each other.
func (r *rates) next(key string, now cpuSample) *uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, ok := r.last[key]
	if age := now.At.Sub(before.At); ok && age < minWindow && now.Total >= before.Total {
		return before.rate
	}
	// A counter that was reset begins a new series: no rate for now.
	next := lastRate{cpuSample: now}
	if ok && now.At.Sub(before.At) <= maxWindow {
		if rate, err := cpuRate(before.cpuSample, now); err == nil {
			next.rate = &rate
		}
	}
	if r.last == nil {
		r.last = map[string]lastRate{}
	}
	r.last[key] = next
	return next.rate
}

// forget drops samples that are too old to be used. Otherwise the samples of removed
// containers would stay in memory.
func (r *rates) forget(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, s := range r.last {
		if now.Sub(s.At) > maxWindow {
			delete(r.last, key)
		}
	}
}

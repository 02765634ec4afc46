package stats

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

// CPUSample is a cumulative count of processor time, in nanoseconds, and when
// it was read.
type CPUSample struct {
	At    time.Time
	Total uint64
}

// ErrCounterReset means that a counter is less than it was.
var ErrCounterReset = errors.New("the counter was reset")

// CPURate is the use between two samples, in nanocores.
func CPURate(before, now CPUSample) (uint64, error) {
	d := now.At.Sub(before.At)
	switch {
	case d <= 0:
		return 0, fmt.Errorf("%v between two samples; want a positive duration", d)
	case now.Total < before.Total:
		return 0, ErrCounterReset
	}
	rate := float64(now.Total-before.Total) / float64(d) * 1e9
	if rate >= math.MaxUint64 {
		return 0, ErrCounterReset // no machine has so many processors
	}
	return uint64(rate), nil
}

// Bounds of a sample's use: less time than minWindow between two makes a rate
// of noise, and after maxWindow it is no rate of now (the kubelet drops its
// samples then too).
const (
	minWindow = time.Second
	maxWindow = 10 * time.Minute
)

// rates remembers the last sample of each cgroup.
type rates struct {
	mu   sync.Mutex
	last map[string]lastRate
}

type lastRate struct {
	CPUSample
	rate *uint64 // nil after the first sample
}

// next takes a new sample and returns the rate, nil if it is not known yet. A
// sample that comes too soon has the rate of the one before.
func (r *rates) next(key string, now CPUSample) *uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, ok := r.last[key]
	if age := now.At.Sub(before.At); ok && age < minWindow && now.Total >= before.Total {
		return before.rate
	}
	next := lastRate{CPUSample: now}
	if ok && now.At.Sub(before.At) <= maxWindow {
		if rate, err := CPURate(before.CPUSample, now); err == nil {
			next.rate = &rate
		}
	}
	if r.last == nil {
		r.last = map[string]lastRate{}
	}
	r.last[key] = next
	return next.rate
}

// forget drops samples that are too old to be used.
func (r *rates) forget(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, s := range r.last {
		if now.Sub(s.At) > maxWindow {
			delete(r.last, key)
		}
	}
}

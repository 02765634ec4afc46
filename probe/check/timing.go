package check

import (
	"math/rand/v2"
	"time"
)

// Spread selects one of three ways in which the checks of probes that were added at the same time
// are spread over a period, so that they do not all run at the same moment.
type Spread int

// The kinds of Spread. SpreadNone keeps the given times. SpreadFirst delays the first check by a
// random part of a period. SpreadSecond makes the first check without a delay, and shortens the
// period after it by a random part of at most half: the first result is not delayed.
const (
	SpreadNone Spread = iota
	SpreadFirst
	SpreadSecond
)

// Timing defines when a probe's checks run and how they are counted. The zero value
// of a field means the default named beside it, which is the Kubernetes API's.
type Timing struct {
	InitialDelay     time.Duration // time before the first check; the default is 0
	Period           time.Duration // time from the start of one check to the start of the next; the default is 10 s
	Timeout          time.Duration // time for one check with its retries; the default is 1 s
	SuccessThreshold int           // successes in a row for a verdict; the default is 1
	FailureThreshold int           // failures in a row for a verdict; the default is 3

	Spread Spread
	// FastStart makes additional checks 100 ms after the first, 200 ms after that,
	// and so on up to the period, until one succeeds. Only successes of these
	// count, so that nothing fails earlier.
	FastStart bool
}

// firstGap is the time from the first check to the first additional one.
const firstGap = 100 * time.Millisecond

func (t Timing) withDefaults() Timing {
	t.InitialDelay = max(t.InitialDelay, 0)
	if t.Period <= 0 {
		t.Period = 10 * time.Second
	}
	if t.Timeout <= 0 {
		t.Timeout = time.Second
	}
	if t.SuccessThreshold <= 0 {
		t.SuccessThreshold = 1
	}
	if t.FailureThreshold <= 0 {
		t.FailureThreshold = 3
	}
	return t
}

// rhythm is a probe's position in its Timing. It is pure: times are arguments.
type rhythm struct {
	t     Timing
	tick  time.Time     // the next regular check
	fast  time.Time     // the next additional check, if it is before tick
	gap   time.Duration // time before the next additional check; 0 if there are no more
	begun bool
}

func newRhythm(t Timing, now time.Time, random func() float64) rhythm {
	r := rhythm{t: t, tick: now.Add(t.InitialDelay)}
	if t.Spread == SpreadFirst {
		r.tick = r.tick.Add(time.Duration(random() * float64(t.Period)))
	}
	if t.FastStart {
		r.gap = firstGap
	}
	return r
}

// next returns the time of the next check, and whether it is an additional one.
func (r *rhythm) next() (due time.Time, extra bool) {
	if !r.fast.IsZero() && r.fast.Before(r.tick) {
		return r.fast, true
	}
	return r.tick, false
}

// ran computes the next times after a check that began at start and ended now.
func (r *rhythm) ran(extra, succeeded bool, start, now time.Time, random func() float64) {
	first := !r.begun
	r.begun = true
	if !extra {
		period := r.t.Period
		if first && r.t.Spread == SpreadSecond {
			period -= time.Duration(random() * float64(period) / 2)
		}
		r.tick = r.tick.Add(period)
		if late := now.Sub(r.tick); late > 0 {
			r.tick = r.tick.Add(late - late%r.t.Period) // the last one missed stands for all
		}
	}
	r.fast = time.Time{}
	if succeeded || r.gap >= r.t.Period {
		r.gap = 0
	}
	if r.gap > 0 && (first || extra) {
		r.fast = start.Add(r.gap)
		r.gap *= 2
	} else if !first {
		r.gap = 0
	}
}

// tally counts outcomes in a row.
type tally struct {
	last   Outcome
	run    int
	errors int
}

// add counts an outcome and returns the verdict: Success or Failure when the
// threshold is reached, else Unknown.
func (c *tally) add(t Timing, o Outcome, err error, extra bool) Outcome {
	if err != nil {
		c.errors++
		return Unknown
	}
	c.errors = 0
	threshold := t.SuccessThreshold
	switch o {
	case Success, Warning:
		o = Success
	default:
		if extra {
			return Unknown
		}
		o, threshold = Failure, t.FailureThreshold
	}
	if c.last != o {
		c.last, c.run = o, 0
	}
	c.run++
	if c.run < threshold {
		return Unknown
	}
	return o
}

func random() float64 { return rand.Float64() } //nolint:gosec // it only spreads load

// Package retry says how long to wait before something that failed is tried
// again: longer after each failure in a row, and never longer than a limit.
//
// A loop keeps a [Backoff] beside what it tries:
//
//	wait := retry.Backoff{First: time.Second, Max: time.Minute}
//	for {
//		err := serve(ctx)
//		...
//		if !wait.Wait(ctx) {
//			return nil
//		}
//	}
//
// Where many things fail on their own, one Backoff holds the limits and each of
// them its last wait ([Backoff.Following]) or its number of failures
// ([Backoff.After]).
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff is how long to wait after failures in a row, and how long the last
// wait was. Its copies go on by themselves. Next, Reset, Recovered and Wait
// must not be called at the same time; the other methods change nothing.
type Backoff struct {
	First  time.Duration // after a first failure; more than 0
	Max    time.Duration // the longest, without Jitter; it limits First, too
	Factor float64       // of a wait to the one before it; 2
	Jitter float64       // the part of a wait that is added at random, at most; 0

	last time.Duration // the latest of Next, without Jitter
}

// Following is the wait after one of last, and First after one of 0. Jitter is
// left out: the result is meant to be remembered.
func (b Backoff) Following(last time.Duration) time.Duration {
	factor := b.Factor
	if factor == 0 {
		factor = 2
	}
	// A float does not overflow, and is exact below 2^53 ns (104 days).
	next := factor * float64(last)
	if next >= float64(b.Max) {
		return b.Max
	}
	return min(max(time.Duration(next), b.First), b.Max)
}

// After is the wait after so many failures in a row, without Jitter. The first
// failure is 1.
func (b Backoff) After(failures int) time.Duration {
	wait := b.Following(0)
	for i := 1; i < failures && wait < b.Max; i++ {
		wait = b.Following(wait)
	}
	return wait
}

// Next counts a failure and returns the wait after it, with Jitter.
func (b *Backoff) Next() time.Duration {
	b.last = b.Following(b.last)
	return Jitter(b.last, b.Jitter)
}

// Reset forgets the failures: the next one is the first again.
func (b *Backoff) Reset() { b.last = 0 }

// Failing reports whether there was a failure since the start or the last
// Reset.
func (b Backoff) Failing() bool { return b.last > 0 }

// Recovered resets b if what failed just now had been going well for longer
// than Max, and reports whether it had. It is for services that work until they
// fail, which have no moment of success.
func (b *Backoff) Recovered(ran time.Duration) bool {
	if ran <= b.Max {
		return false
	}
	b.Reset()
	return true
}

// Wait counts a failure and waits as long as Next says. It reports whether the
// time has passed; otherwise ctx has ended.
func (b *Backoff) Wait(ctx context.Context) bool { return Sleep(ctx, b.Next()) }

// Sleep waits for d. It reports whether the time has passed; otherwise ctx has
// ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
	return ctx.Err() == nil
}

// Jitter is a random duration of at least d and less than d and that part of
// it, so that what fails together is not tried again together. Jitter(d/2, 2)
// is d on average.
func Jitter(d time.Duration, part float64) time.Duration {
	return d + time.Duration(rand.Float64()*part*float64(d))
}

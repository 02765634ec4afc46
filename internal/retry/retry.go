// Package retry computes the time to wait before a retry: longer after each failure
// in a row, up to a limit.
//
// A loop has a [Backoff] of its own:
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
// For many independent operations, one Backoff has the limits, and each operation
// has its last wait ([Backoff.Following]) or its number of failures
// ([Backoff.After]).
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff has the waits after failures in a row, and the last wait. A copy is
// independent. Next, Reset, Recovered and Wait must not be called concurrently; the
// other methods do not change b.
type Backoff struct {
	First  time.Duration // after the first failure; must be more than 0
	Max    time.Duration // the longest wait, without Jitter; it limits First, too
	Factor float64       // quotient of a wait and the one before it; the default is 2
	Jitter float64       // maximum random addition, as a part of the wait; the default is 0

	last time.Duration // the last result of Next, without Jitter
}

// Following returns the wait that follows the wait last; First if last is 0. It has
// no Jitter: callers store it.
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

// After returns the wait after this number of failures in a row, without Jitter.
// The first failure is 1.
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

// Reset forgets the failures: the next wait is First.
func (b *Backoff) Reset() { b.last = 0 }

// Failing reports whether there was a failure since the start or the last
// Reset.
func (b Backoff) Failing() bool { return b.last > 0 }

// Recovered resets b if ran is longer than Max, and reports whether it did. It is
// for services that run until they fail; ran is the time that the service has run.
func (b *Backoff) Recovered(ran time.Duration) bool {
	if ran <= b.Max {
		return false
	}
	b.Reset()
	return true
}

// Wait counts a failure and waits for the duration of Next. It returns false if ctx
// ends first.
func (b *Backoff) Wait(ctx context.Context) bool { return Sleep(ctx, b.Next()) }

// Sleep waits for d. It returns false if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
	return ctx.Err() == nil
}

// Jitter returns a random duration from d up to, but not including, d*(1+part). It
// spreads retries that would otherwise be simultaneous. The average of Jitter(d/2,
// 2) is d.
func Jitter(d time.Duration, part float64) time.Duration {
	return d + time.Duration(rand.Float64()*part*float64(d))
}

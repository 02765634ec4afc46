// Package retry computes the time to wait before a retry (exponential backoff). The wait
// becomes longer after each successive failure, up to a limit.
//
// Use one [Backoff] for each loop:
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
// Many independent operations can share one Backoff, if the caller stores for each
// operation its last wait ([Backoff.Following]) or its number of successive failures
// ([Backoff.After]).
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff has the limits of waits, and the last wait. A copy of a Backoff is independent.
// Next, Reset, Recovered and Wait must not be called concurrently; the other methods do
// not change b.
type Backoff struct {
	First  time.Duration // wait after the first failure; must be more than 0
	Max    time.Duration // longest wait without Jitter; also limits First
	Factor float64       // each wait is the previous wait times Factor; the default is 2
	Jitter float64       // maximum random addition, as a fraction of the wait; the default is 0

	last time.Duration // the last result of Next, without Jitter
}

// Following returns the wait after the wait last, or First if last is 0. It adds no
// Jitter, so that callers can pass the result to the next call.
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

// After returns the wait after this number of successive failures, without Jitter. For one
// failure the wait is First.
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

// Reset makes the next wait First again. Call it after a success.
func (b *Backoff) Reset() { b.last = 0 }

// Failing reports whether Next has counted a failure since the start or the last Reset.
func (b Backoff) Failing() bool { return b.last > 0 }

// Recovered resets b and returns true if a service ran for longer than Max. ran is the time between
// the service's last start and its failure.
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

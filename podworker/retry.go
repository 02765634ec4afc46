package podworker

import (
	"errors"
	"math/rand/v2"
	"time"
)

// jitter spreads d over [d, 1.5 d), the kubelet's factor.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration(rand.Float64()*0.5*float64(d))
}

// retry says how long to wait after an error and what for.
func (m *Manager) retry(failures int, err error, now time.Time) (time.Duration, string) {
	reason := reasonOf(err)
	if errors.Is(err, ErrNetworkNotReady) {
		return jitter(m.cfg.NetworkBackoff), "NetworkNotReady"
	}
	if at, ok := retryAt(err); ok {
		d := at.Sub(now)
		if d <= 0 && failures > 1 {
			d = m.cfg.Backoff // a time that has passed is no leave to spin
		}
		return min(max(d, 0), m.cfg.Resync), reason
	}
	d := m.cfg.Backoff
	for range failures - 1 {
		if d *= 2; d >= m.cfg.MaxBackoff {
			break
		}
	}
	return jitter(min(d, m.cfg.MaxBackoff)), reason
}

// walk visits err and all that it wraps.
func walk(err error, visit func(error)) {
	if err == nil {
		return
	}
	visit(err)
	switch w := err.(type) { //nolint:errorlint // the tree itself is walked
	case interface{ Unwrap() error }:
		walk(w.Unwrap(), visit)
	case interface{ Unwrap() []error }:
		for _, e := range w.Unwrap() {
			walk(e, visit)
		}
	}
}

// retryAt finds the earliest time that anything in err asks for.
func retryAt(err error) (at time.Time, ok bool) {
	walk(err, func(e error) {
		if b, is := e.(interface{ RetryAt() time.Time }); is {
			if t := b.RetryAt(); !t.IsZero() && (!ok || t.Before(at)) {
				at, ok = t, true
			}
		}
	})
	return at, ok
}

// reasonOf finds the outermost name that anything in err bears.
func reasonOf(err error) string {
	reason := ""
	walk(err, func(e error) {
		if n, is := e.(interface{ Reason() string }); is && reason == "" {
			reason = n.Reason()
		}
	})
	if reason == "" {
		return "FailedSync"
	}
	return reason
}

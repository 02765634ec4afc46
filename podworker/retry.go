package podworker

import (
	"errors"
	"time"

	delays "github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/podworker/serial"
)

// jitter spreads d over [d, 1.5 d), the kubelet's factor. Pods that were
// started together do not stay in step.
func jitter(d time.Duration) time.Duration { return delays.Jitter(d, 0.5) }

// retry returns how long to wait after an error and what for. failures counts
// those in a row, this one included. A time that the error asks for is bounded
// by Config.Resync: a syncer that is wrong about it must not put the pod to
// sleep.
func (m *Manager) retry(failures int, err error, now time.Time) (time.Duration, string) {
	reason := reasonOf(err)
	// The network comes up for all pods at once, and soon after a start.
	if errors.Is(err, ErrNetworkNotReady) {
		return m.jitter(m.cfg.NetworkBackoff), "NetworkNotReady"
	}
	if at, ok := retryAt(err); ok {
		d := at.Sub(now)
		if d <= 0 && failures > 1 {
			d = m.cfg.Backoff // a time that has passed is no leave to spin
		}
		return min(max(d, 0), m.cfg.Resync), reason
	}
	b := serial.Backoff{First: m.cfg.Backoff, Max: m.cfg.MaxBackoff}
	return m.jitter(b.Delay(failures)), reason
}

// RetryAter is an error of a [Syncer] that knows when the next try makes sense. The
// earliest time among all wrapped errors counts; the zero time is none.
type RetryAter interface {
	RetryAt() time.Time
}

// Reasoner is an error of a [Syncer] with a name for people and metrics, such as
// ImagePullBackOff. The outermost of all wrapped errors counts.
type Reasoner interface {
	Reason() string
}

// walk visits err and all that it wraps, the outer errors first and those of a
// join in their order.
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
		if b, is := e.(RetryAter); is {
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
		if reason != "" {
			return
		}
		switch n := e.(type) { //nolint:errorlint // walk unwraps
		case Reasoner:
			reason = n.Reason()
		case *serial.PanicError:
			reason = "Panic"
		}
	})
	if reason == "" {
		return "FailedSync"
	}
	return reason
}

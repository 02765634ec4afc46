package podruntime

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/callerror"
	"github.com/nodewright/nodewright/internal/retry"
)

// waits are those after failures of one container or sandbox in a row. What fails makes events
// of its own: without a wait each failure would lead to the next at once.
var waits = retry.Backoff{First: time.Second, Max: time.Minute}

// run is the newest attempt of one container of a pod, or of its sandbox. It is in memory
// alone: an agent that begins learns of runs by what the runtime shows.
type run struct {
	// Next is when the container or sandbox may be tried again after a failure.
	Next time.Time
	// Err is why the last attempt came no further; nil after one that succeeded.
	Err error
	// failed is the last wait after failed calls in a row, 0 if the last one succeeded.
	failed time.Duration
}

// runs are the runs of all pods.
type runs struct {
	mu   sync.Mutex
	pods map[types.UID]podRuns
}

// podRuns are the runs of one pod by container name; "" is the sandbox. Its methods have no
// lock and no clock.
type podRuns map[string]*run

func newRuns() *runs { return &runs{pods: map[types.UID]podRuns{}} }

// see calls do with the runs of a pod, nil if there are none, under the lock.
func (r *runs) see(uid types.UID, do func(podRuns)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do(r.pods[uid])
}

// change calls do with the runs of a pod, which it may change, under the lock.
func (r *runs) change(uid types.UID, do func(podRuns)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pods[uid]
	if p == nil {
		p = podRuns{}
		r.pods[uid] = p
	}
	do(p)
}

// forget drops all runs of a pod.
func (r *runs) forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pods, uid)
}

// of returns the run of a container, a new one if there is none.
func (p podRuns) of(name string) *run {
	r := p[name]
	if r == nil {
		r = &run{}
		p[name] = r
	}
	return r
}

// held returns why a container or sandbox may not be tried yet, and until when; nil if it may.
func (p podRuns) held(name string, now time.Time) *heldError {
	if r := p[name]; r != nil && now.Before(r.Next) {
		return &heldError{err: r.Err, until: r.Next}
	}
	return nil
}

// fail notes that a call of an attempt failed, and returns err with the time of the next one.
func (p podRuns) fail(name string, err error, now time.Time) error {
	r := p.of(name)
	r.failed = waits.Following(r.failed)
	r.Next, r.Err = now.Add(r.failed), err
	return &triedError{err: err, until: r.Next}
}

// succeed notes that the calls of an attempt succeeded.
func (p podRuns) succeed(name string) {
	r := p.of(name)
	r.Next, r.failed = time.Time{}, 0
}

// retry ends the waits after failed calls.
func (p podRuns) retry() {
	for _, r := range p {
		if r.failed > 0 {
			r.Next, r.failed = time.Time{}, 0
		}
	}
}

// held is [podRuns.held].
func (r *runs) held(uid types.UID, name string, now time.Time) (err *heldError) {
	r.see(uid, func(p podRuns) { err = p.held(name, now) })
	return err
}

// fail is [podRuns.fail].
func (r *runs) fail(uid types.UID, name string, err error, now time.Time) error {
	r.change(uid, func(p podRuns) { err = p.fail(name, err, now) })
	return err
}

// succeed is [podRuns.succeed].
func (r *runs) succeed(uid types.UID, name string) {
	r.change(uid, func(p podRuns) { p.succeed(name) })
}

// note notes how the last attempt of a container went, for StartErrors.
func (r *runs) note(uid types.UID, name string, err error) {
	r.change(uid, func(p podRuns) { p.of(name).Err = err })
}

// Retry ends the back-offs of failed creations and starts of the pod, since something that they
// depend on has changed. Crash-loop back-offs stay.
func (m *Manager) Retry(uid types.UID) { m.runs.see(uid, podRuns.retry) }

// StartErrors returns, by container name, the errors of containers whose last start failed.
// The map is the caller's.
func (m *Manager) StartErrors(uid types.UID) map[string]StartError {
	out := map[string]StartError{}
	m.runs.see(uid, func(p podRuns) {
		for name, r := range p {
			if name != "" && r.Err != nil {
				out[name] = StartError{Reason: reasonOf(r.Err), Message: callerror.Shown(r.Err)}
			}
		}
	})
	return out
}

// triedError is a failure with the time of the next try.
type triedError struct {
	err   error
	until time.Time
}

func (e *triedError) Error() string      { return e.err.Error() }
func (e *triedError) Unwrap() error      { return e.err }
func (e *triedError) RetryAt() time.Time { return e.until }

// heldError is a failure that was not repeated.
type heldError struct {
	err   error
	until time.Time
}

func (e *heldError) Error() string      { return e.err.Error() }
func (e *heldError) Unwrap() error      { return e.err }
func (e *heldError) RetryAt() time.Time { return e.until }

// Is has it match errUndone: nothing was asked of the runtime.
func (e *heldError) Is(target error) bool { return target == errUndone }

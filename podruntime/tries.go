package podruntime

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/retry"
)

// The wait after a failed try: of making a sandbox, or of making or starting
// a container. What fails makes events of its own, so without it each failure
// would lead at once to the next.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// tries holds back what has just failed.
type tries struct {
	// mu guards entries. A pod's go with its success, by container, or with
	// forget.
	mu      sync.Mutex
	entries map[types.UID]map[string]try // by the container's name; "" is the sandbox
}

type try struct {
	// delay is the last wait, which the next one doubles, until its end, and err
	// the failure.
	delay time.Duration
	until time.Time
	err   error
}

func newTries() *tries { return &tries{entries: map[types.UID]map[string]try{}} }

// held returns the last error, as one that says when to try again, for as long
// as that is to come.
func (t *tries) held(uid types.UID, name string, now time.Time) *heldError {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.entries[uid][name]; ok && now.Before(e.until) {
		return &heldError{err: e.err, until: e.until}
	}
	return nil
}

// note counts a failure, or with nil forgets those there were. It returns err
// with the time of the next try.
func (t *tries) note(uid types.UID, name string, err error, now time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		delete(t.entries[uid], name)
		return nil
	}
	if t.entries[uid] == nil {
		t.entries[uid] = map[string]try{}
	}
	e := t.entries[uid][name]
	// A zero delay is that of no failure before.
	e.delay = retry.Backoff{First: firstRetry, Max: lastRetry}.Following(e.delay)
	e.until, e.err = now.Add(e.delay), err
	t.entries[uid][name] = e
	return &triedError{err: err, until: e.until}
}

// forget ends all waits of a pod, and the next failure is the first again.
func (t *tries) forget(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.entries, uid)
}

// Retry ends the back-offs of failed creations and starts of the pod, since something that they
// depend on has changed. Crash-loop back-offs stay.
func (m *Manager) Retry(uid types.UID) { m.tries.forget(uid) }

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

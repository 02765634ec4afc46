package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// errWaits is the error for a pod that has to wait. The agent shows its Reason, and starts
// the pod again at RetryAt.
type errWaits struct {
	product string
	cause   error
	at      time.Time
}

func (e *errWaits) Error() string      { return fmt.Sprintf("licence %q: %v", e.product, e.cause) }
func (e *errWaits) Unwrap() error      { return e.cause }
func (*errWaits) Reason() string       { return "NoLicence" }
func (e *errWaits) RetryAt() time.Time { return e.at }

// note records the result of an attempt to get a licence. For an error it returns an
// errWaits, and emits an event if the error is new.
func (l *licences) note(pod *v1.Pod, product string, err error) error {
	if err == nil {
		l.set(pod.UID, true)
		return nil
	}
	waits := &errWaits{product: product, cause: err, at: time.Now().Add(askAgain)}
	l.mu.Lock()
	news := l.waits[pod.UID] != waits.Error()
	l.waits[pod.UID] = waits.Error()
	l.mu.Unlock()
	if news {
		l.host.Event(pod, nil, v1.EventTypeWarning, waits.Reason(), "Pod waits for "+waits.Error())
	}
	return waits
}

// Explain implements part.Explainer.
func (l *licences) Explain(pod *v1.Pod) string { return l.waitsFor(pod.UID) }

func (l *licences) waitsFor(uid types.UID) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waits[uid]
}

func (l *licences) holds(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.has[uid]
}

// set records whether a pod has its licence.
func (l *licences) set(uid types.UID, licensed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waits, uid)
	delete(l.has, uid)
	if licensed {
		l.has[uid] = true
	}
}

// forget deletes the state of a pod, and reports whether the pod had its licence.
func (l *licences) forget(uid types.UID) bool {
	had := l.holds(uid)
	l.set(uid, false)
	return had
}

// turns has a lock for each pod.
type turns struct {
	mu    sync.Mutex
	taken map[types.UID]chan struct{} // by locked UID: closed when the lock is released
}

// take locks uid until done is called. It returns an error if ctx ends before it gets the lock.
func (t *turns) take(ctx context.Context, uid types.UID) (done func(), err error) {
	for {
		t.mu.Lock()
		before, mine := t.taken[uid], make(chan struct{})
		if before == nil {
			if t.taken == nil {
				t.taken = map[types.UID]chan struct{}{}
			}
			t.taken[uid] = mine
			t.mu.Unlock()
			return func() { t.end(uid) }, nil
		}
		t.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-before:
		}
	}
}

func (t *turns) end(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.taken[uid])
	delete(t.taken, uid)
}

package statusmgr

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Change is an accepted status. Pod and Status are shared: do not change them.
type Change struct {
	UID    types.UID
	Pod    *v1.Pod
	Status *v1.PodStatus
	// Added tells that it is the pod's first, Finished that nothing is left
	// of the pod, Removed that the status was dropped (and is not here).
	Added, Finished, Removed bool
}

// subscription hands changes on in order, however slow the reader is.
type subscription struct {
	mu     sync.Mutex
	queue  []Change
	closed bool
	signal chan struct{}
}

func (s *subscription) put(c Change) {
	s.mu.Lock()
	s.queue = append(s.queue, c)
	s.mu.Unlock()
	s.wake()
}

func (s *subscription) wake() {
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

func (s *subscription) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.wake()
}

// drop closes, and forgets what was not taken.
func (s *subscription) drop() {
	s.mu.Lock()
	s.queue = nil
	s.mu.Unlock()
	s.close()
}

func (s *subscription) take() (c Change, ok, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return Change{}, false, s.closed
	}
	c = s.queue[0]
	s.queue = s.queue[1:]
	return c, true, false
}

// Subscribe calls fn for every status accepted from now on, in order, until
// cancel is called or Run ends, which waits for fn to have seen all of them.
// fn runs on a goroutine of its own and may call the manager; a slow fn delays
// nobody else. A call may be under way when cancel returns; no other follows.
func (m *Manager) Subscribe(fn func(Change)) (cancel func()) {
	s := &subscription{signal: make(chan struct{}, 1)}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx != nil && m.ctx.Err() != nil {
		return func() {} // Run has ended or is about to
	}
	m.subs[s] = true
	m.wg.Go(func() {
		for range s.signal {
			for {
				c, ok, closed := s.take()
				if closed {
					return
				}
				if !ok {
					break
				}
				fn(c)
			}
		}
	})
	return func() {
		m.mu.Lock()
		delete(m.subs, s)
		m.mu.Unlock()
		s.drop()
	}
}

// notify tells every subscriber.
func (m *Manager) notify(c Change) {
	for s := range m.subs {
		s.put(c)
	}
}

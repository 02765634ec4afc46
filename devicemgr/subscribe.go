package devicemgr

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Change tells what became different.
type Change struct {
	// Resources whose devices came, went, or changed in number or health:
	// pods that wait for one may be admitted again.
	Resources []string
	// Pods have devices whose health changed, so that their status did.
	Pods []types.UID
}

// subscription hands changes on, those that a slow reader has not seen in one.
type subscription struct {
	mu      sync.Mutex
	waiting Change
	any     bool
	closed  bool
	signal  chan struct{}
}

func (s *subscription) put(c Change) {
	s.mu.Lock()
	s.waiting.Resources = union(s.waiting.Resources, c.Resources)
	s.waiting.Pods = union(s.waiting.Pods, c.Pods)
	s.any = true
	s.mu.Unlock()
	s.wake()
}

func union[T ~string](a, b []T) []T {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
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

func (s *subscription) take() (c Change, ok, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok = s.waiting, s.any
	s.waiting, s.any = Change{}, false
	return c, ok && !s.closed, s.closed
}

// Subscribe calls fn for what changes from now on, until cancel is called or
// Run ends. Changes that come while fn is busy are put together: a plugin that
// flaps costs its readers no more than they can take. fn runs on a goroutine
// of its own and may call the manager. A call may be under way when cancel
// returns; no other follows.
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
			c, ok, closed := s.take()
			if closed {
				return
			}
			if ok {
				fn(c)
			}
		}
	})
	return func() {
		m.mu.Lock()
		delete(m.subs, s)
		m.mu.Unlock()
		s.close()
	}
}

// notify tells every subscriber. Manager.mu is held.
func (m *Manager) notify(c Change) {
	for s := range m.subs {
		s.put(c)
	}
}

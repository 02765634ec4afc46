package dra

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Change tells what became different.
type Change struct {
	// Drivers that came.
	Drivers []string
	// Pods that waited for one of them, or have devices whose health changed:
	// they should be synced.
	Pods []types.UID
}

// subscription hands changes on, those that a slow reader has not seen in one.
type subscription struct {
	mu      sync.Mutex
	drivers map[string]bool
	pods    map[types.UID]bool
	closed  bool
	signal  chan struct{}
}

func (s *subscription) put(c Change) {
	s.mu.Lock()
	for _, d := range c.Drivers {
		s.drivers[d] = true
	}
	for _, p := range c.Pods {
		s.pods[p] = true
	}
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

func (s *subscription) take() (c Change, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c = Change{sorted(s.drivers), sorted(s.pods)}
	clear(s.drivers)
	clear(s.pods)
	return c, s.closed
}

func sorted[T ~string](set map[T]bool) []T {
	if len(set) == 0 {
		return nil
	}
	list := make([]T, 0, len(set))
	for x := range set {
		list = append(list, x)
	}
	slices.Sort(list)
	return list
}

// Subscribe calls fn for what changes from now on, until cancel is called or
// Run ends. Changes that come while fn is busy are put together. fn runs on a
// goroutine of its own and may call the manager. A call may be under way when
// cancel returns; no other follows.
func (m *Manager) Subscribe(fn func(Change)) (cancel func()) {
	s := &subscription{drivers: map[string]bool{}, pods: map[types.UID]bool{}, signal: make(chan struct{}, 1)}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx != nil && m.ctx.Err() != nil {
		return func() {} // Run has ended or is about to
	}
	m.subs[s] = true
	m.wg.Go(func() {
		for range s.signal {
			c, closed := s.take()
			if closed {
				return
			}
			if len(c.Drivers)+len(c.Pods) > 0 {
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

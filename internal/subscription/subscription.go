// Package subscription delivers news to those who asked for it, each on a
// goroutine of its own: a slow subscriber delays neither the publisher nor the
// other subscribers.
//
// A block keeps a [List] and offers its Add as Subscribe:
//
//	func (m *Manager) Subscribe(fn func(Change)) (cancel func()) { return m.subs.Add(fn) }
//
// It publishes whenever something has changed, also while it holds a lock of
// its own, and ends its Run with [List.Close] or [List.Drop], and [List.Wait].
package subscription

import (
	"cmp"
	"slices"
	"sync"
)

// List is a list of subscribers. The zero value is ready for use and delivers
// everything that is published, in order. Its methods may be called from any
// goroutine; none but Wait blocks.
type List[T any] struct {
	// Merge, if not nil, makes one of what a busy subscriber has not yet got
	// (the zero value, if that is nothing) and of what is published, so that
	// nothing piles up. It must change neither, since others have them too,
	// and is called with a lock held.
	Merge func(waiting, next T) T

	mu     sync.Mutex
	subs   map[*subscriber[T]]bool
	closed bool
	wg     sync.WaitGroup // one for each subscriber
}

// subscriber is guarded by List.mu.
type subscriber[T any] struct {
	waiting []T
	ended   bool
	signal  chan struct{} // has a value when the above may have changed
}

func (s *subscriber[T]) wake() {
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// Add calls fn for what is published from now on, until cancel is called or
// the list is closed. fn may call anything, the list included, but Wait. A call
// may be under way when cancel returns; no other follows. To a closed list
// nothing is added.
func (l *List[T]) Add(fn func(T)) (cancel func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return func() {}
	}
	s := &subscriber[T]{signal: make(chan struct{}, 1)}
	if l.subs == nil {
		l.subs = map[*subscriber[T]]bool{}
	}
	l.subs[s] = true
	l.wg.Go(func() {
		for v, ok := l.next(s); ok; v, ok = l.next(s) {
			fn(v)
		}
	})
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.drop(s)
	}
}

// next waits for what a subscriber gets next. It returns false when nothing
// follows any more.
func (l *List[T]) next(s *subscriber[T]) (v T, ok bool) {
	for {
		l.mu.Lock()
		if len(s.waiting) > 0 {
			v, s.waiting[0] = s.waiting[0], v // which lets go of it
			s.waiting = s.waiting[1:]
			l.mu.Unlock()
			return v, true
		}
		if s.ended {
			delete(l.subs, s)
			l.mu.Unlock()
			return v, false
		}
		l.mu.Unlock()
		<-s.signal
	}
}

// Publish has v delivered to all subscribers.
func (l *List[T]) Publish(v T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.subs {
		switch {
		case l.Merge == nil:
			s.waiting = append(s.waiting, v)
		case len(s.waiting) == 0:
			var none T
			s.waiting = append(s.waiting, l.Merge(none, v))
		default:
			s.waiting[0] = l.Merge(s.waiting[0], v)
		}
		s.wake()
	}
}

// Close ends all subscriptions once their subscribers have got what was
// published.
func (l *List[T]) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for s := range l.subs {
		s.ended = true
		s.wake()
	}
}

// Drop ends all subscriptions as their cancel does: what waits is not delivered
// any more.
func (l *List[T]) Drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for s := range l.subs {
		l.drop(s)
	}
}

func (l *List[T]) drop(s *subscriber[T]) {
	s.waiting, s.ended = nil, true
	delete(l.subs, s)
	s.wake()
}

// Wait returns when no call of a subscriber is under way and none will follow.
// It may be called after Close or Drop.
func (l *List[T]) Wait() { l.wg.Wait() }

// Union is what is in a or b, in order and once. It shares nothing with them,
// and serves Merge where changes are sets.
func Union[T cmp.Ordered](a, b []T) []T {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

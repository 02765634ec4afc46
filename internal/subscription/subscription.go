// Package subscription delivers values to subscribers, each on its own goroutine: a
// slow subscriber delays neither the publisher nor other subscribers.
//
// A package has a [List] and offers its method Add as Subscribe:
//
//	func (m *Manager) Subscribe(fn func(Change)) (cancel func()) { return m.subs.Add(fn) }
//
// It calls Publish after each change; it may hold its lock. At its end it calls
// [List.Close] or [List.Drop], and then [List.Wait].
package subscription

import (
	"cmp"
	"slices"
	"sync"

	"github.com/nodewright/nodewright/internal/wake"
)

// List is a list of subscribers. The zero value is ready for use and delivers all
// published values in order. Its methods may be called from any goroutine; only
// Wait blocks.
type List[T any] struct {
	// Merge combines the undelivered value of a busy subscriber with the next value, so that at
	// most one value is waiting. If there is no undelivered value, waiting is the zero value.
	// Merge is called with a lock held. It must not change its arguments, which other
	// subscribers share. If Merge is nil, each value is delivered.
	Merge func(waiting, next T) T

	mu     sync.Mutex
	subs   map[*subscriber[T]]bool
	closed bool
	wg     sync.WaitGroup // counts the goroutines of subscribers
}

// subscriber is guarded by List.mu.
type subscriber[T any] struct {
	waiting []T
	ended   bool
	signal  wake.Signal // set if waiting or ended may have changed
}

// Add calls fn for each value that is published from now on, until cancel is called or
// the list is closed. fn may call all methods of the list except Wait. A call of fn may
// still be running when cancel returns, but no further call follows. Add has no effect on
// a closed list.
func (l *List[T]) Add(fn func(T)) (cancel func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return func() {}
	}
	s := &subscriber[T]{signal: wake.New()}
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

// next waits for the next value of a subscriber. It returns false if the subscription has
// ended and all values are delivered.
func (l *List[T]) next(s *subscriber[T]) (v T, ok bool) {
	for {
		l.mu.Lock()
		if len(s.waiting) > 0 {
			v, s.waiting[0] = s.waiting[0], v // clears the entry for the garbage collector
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

// Publish queues v for delivery to all subscribers. It does not wait for the delivery.
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
		s.signal.Set()
	}
}

// Close ends all subscriptions when the published values are delivered. It does not wait.
func (l *List[T]) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for s := range l.subs {
		s.ended = true
		s.signal.Set()
	}
}

// Drop ends all subscriptions and discards undelivered values.
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
	s.signal.Set()
}

// Wait returns when all subscriptions have ended and no call of a subscriber is running.
// Call it after Close or Drop.
func (l *List[T]) Wait() { l.wg.Wait() }

// Union returns the sorted elements of a and b, without duplicates. The result shares no
// memory with a and b. Use it as Merge of a List whose values are sets of changes.
func Union[T cmp.Ordered](a, b []T) []T {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

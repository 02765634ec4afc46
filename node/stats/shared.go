package stats

import (
	"context"
	"sync"
	"time"
)

// shared lets many who ask at the same time have one answer. Whoever comes first
// makes it, in its own goroutine and by its own ctx; if that ends, one of those who
// wait begins again. An error is an answer too, and is kept as long: askers must
// not queue up behind a runtime that hangs. The zero value is ready for use.
type shared[T any] struct {
	mu     sync.Mutex
	began  time.Time // when the answer was begun; zero: there is none
	value  T
	err    error
	flight chan struct{} // closed when the one who makes it is done; nil if nobody does
}

// get returns an answer that was begun at oldest or later. make is called without
// the lock. The value is shared by all who get it.
func (s *shared[T]) get(ctx context.Context, oldest time.Time, make func(context.Context) (T, error)) (T, error) {
	for {
		s.mu.Lock()
		if !s.began.IsZero() && !s.began.Before(oldest) {
			defer s.mu.Unlock()
			return s.value, s.err
		}
		// An answer under way may have begun before oldest. The loop looks at it
		// when it is there, and makes another if it is too old.
		if wait := s.flight; wait != nil {
			s.mu.Unlock()
			select {
			case <-wait:
				continue
			case <-ctx.Done():
				var none T
				return none, ctx.Err()
			}
		}
		// The claim is made under the lock: there is one who makes the answer.
		done := newFlight()
		s.flight = done
		s.mu.Unlock()
		return s.fly(ctx, done, make)
	}
}

// newFlight is a function of its own, as get has a parameter named make.
func newFlight() chan struct{} { return make(chan struct{}) }

// fly makes the answer and wakes those who wait, even if make panics.
func (s *shared[T]) fly(ctx context.Context, done chan struct{}, make func(context.Context) (T, error)) (T, error) {
	began := time.Now()
	finished := false
	var v T
	var err error
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.flight = nil
		// An answer that ended with its maker's ctx says nothing to others: they
		// begin again. Its age is that of the beginning, since any part may be that
		// old.
		if finished && ctx.Err() == nil {
			s.began, s.value, s.err = began, v, err
		}
		close(done)
	}()
	v, err = make(ctx)
	finished = true // it did not panic
	return v, err
}

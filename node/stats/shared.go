package stats

import (
	"context"
	"sync"
	"time"
)

// shared lets many who ask at the same time have one answer. Whoever comes
// first makes it, in its own goroutine and by its own ctx; if that ends, one
// of those who wait begins again.
type shared[T any] struct {
	mu     sync.Mutex
	began  time.Time // when the answer was begun; zero: there is none
	value  T
	err    error
	flight chan struct{} // closed when the one who makes it is done; nil if nobody does
}

// get returns an answer that was begun at oldest or later.
func (s *shared[T]) get(ctx context.Context, oldest time.Time, make func(context.Context) (T, error)) (T, error) {
	for {
		s.mu.Lock()
		if !s.began.IsZero() && !s.began.Before(oldest) {
			defer s.mu.Unlock()
			return s.value, s.err
		}
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
		done := newFlight()
		s.flight = done
		s.mu.Unlock()
		return s.fly(ctx, done, make)
	}
}

func newFlight() chan struct{} { return make(chan struct{}) }

func (s *shared[T]) fly(ctx context.Context, done chan struct{}, make func(context.Context) (T, error)) (T, error) {
	began := time.Now()
	finished := false
	var v T
	var err error
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.flight = nil
		if finished && ctx.Err() == nil {
			s.began, s.value, s.err = began, v, err
		}
		close(done)
	}()
	v, err = make(ctx)
	finished = true // it did not panic
	return v, err
}

package stats

import (
	"context"
	"sync"
	"time"
)

// shared gives concurrent callers one answer. The first caller computes it, on its own
// goroutine and with its own ctx. If this ctx ends, one of the waiting callers starts
// again. An error is stored like any other answer, so that callers do not wait one
// after the other for a hanging runtime. The zero value is ready.
type shared[T any] struct {
	mu     sync.Mutex
	began  time.Time // start time of the stored answer; zero: none
	value  T
	err    error
	flight chan struct{} // closed when the running call has ended; nil if there is none
}

// get returns an answer whose computation began at the time oldest or later. The
// parameter make computes an answer, and is called without the lock. All callers share
// the value.
func (s *shared[T]) get(ctx context.Context, oldest time.Time, make func(context.Context) (T, error)) (T, error) {
	for {
		s.mu.Lock()
		if !s.began.IsZero() && !s.began.Before(oldest) {
			defer s.mu.Unlock()
			return s.value, s.err
		}
		// A running call may have started before oldest. The loop checks its
		// answer, and makes another if it is too old.
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
		// The flight is set under the lock: only one caller makes the answer.
		done := newFlight()
		s.flight = done
		s.mu.Unlock()
		return s.fly(ctx, done, make)
	}
}

// newFlight is a separate function, since get has a parameter named make.
func newFlight() chan struct{} { return make(chan struct{}) }

// fly computes the answer and wakes the waiting callers, even if its parameter make
// panics.
func (s *shared[T]) fly(ctx context.Context, done chan struct{}, make func(context.Context) (T, error)) (T, error) {
	began := time.Now()
	finished := false
	var v T
	var err error
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.flight = nil
		// An answer that ended with its maker's ctx is not for others: they start
		// again. Its age counts from its start, since any part may be that old.
		if finished && ctx.Err() == nil {
			s.began, s.value, s.err = began, v, err
		}
		close(done)
	}()
	v, err = make(ctx)
	finished = true // it did not panic
	return v, err
}

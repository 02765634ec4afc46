package detached

import (
	"context"
	"sync/atomic"
)

// Queue makes calls with the same key one after the other. A [Group], in contrast, makes
// no call while one with the same key is running, but returns the result of the running
// call. The zero value is ready; a Queue must not be copied.
type Queue struct {
	// Limit is the maximum number of calls in flight. The default is 64.
	Limit int
	// Wait is the same as Wait of [Group].
	Wait bool

	group atomic.Pointer[Group[turn]]
	last  atomic.Uint64
}

// turn is one call in the queue, with its result.
type turn struct {
	number uint64
	value  any
	err    error
}

// Next waits until the previous call with the same key has ended, calls f and returns
// its result. If ctx ends first, Next returns context.Cause of ctx; then f is not
// called, or it is running and continues. Since f may run longer than Next, f and the
// caller must not share data that one of them changes. While Limit calls of other keys are in
// flight, Next returns an [ErrBusy] at once. If q.Wait is set, it waits for a free
// place instead, and returns an [ErrBusy] when ctx ends.
func Next[T any](ctx context.Context, q *Queue, key string, f func() (T, error)) (T, error) {
	var zero T
	q.group.CompareAndSwap(nil, &Group[turn]{Limit: q.Limit, Wait: q.Wait})
	number := q.last.Add(1)
	for {
		done, err := q.group.Load().Do(ctx, key, func() (turn, error) {
			v, err := f()
			return turn{number, v, err}, nil
		})
		switch {
		case err != nil:
			return zero, err
		case done.number == number:
			v, _ := done.value.(T)
			return v, done.err
		}
	}
}

// InFlight returns the number of calls that have not returned.
func (q *Queue) InFlight() int {
	if g := q.group.Load(); g != nil {
		return g.InFlight()
	}
	return 0
}

package detached

import (
	"context"
	"sync/atomic"
)

// Queue makes calls one after the other by key, where a [Group] would share
// the result of the one under way. Its zero value is ready; it must not be
// copied.
type Queue struct {
	// Limit is how many calls may be in flight at a time; 64.
	Limit int
	// Wait is that of [Group].
	Wait bool

	group atomic.Pointer[Group[turn]]
	last  atomic.Uint64
}

// turn is what one call came to.
type turn struct {
	number uint64
	value  any
	err    error
}

// Next calls f when the call with the same key before it has ended, and returns
// what it returns, or the cause of ctx's end if that comes first. f is then not
// called, or goes on, and so must share nothing that changes with the caller.
// With Limit calls of other keys in flight, Next returns an [ErrBusy] at once, or
// with Wait at the end of ctx.
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

// InFlight returns how many calls have not returned.
func (q *Queue) InFlight() int {
	if g := q.group.Load(); g != nil {
		return g.InFlight()
	}
	return 0
}

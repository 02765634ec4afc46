package auth

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrBusy means that too many requests wait for reviews. The request is neither accepted nor
// rejected, and the client may try again.
var ErrBusy = errors.New("too many requests wait for TokenReviews or SubjectAccessReviews")

// asks limits the concurrent reviews.
const asks = 32

// bounds are the limits of a cache.
type bounds struct {
	yes, no      int // limits of cached positive answers, and of others
	waiting, one int // limits of waiting requests, in total and per user or host
}

// cache keeps answers for a time, and limits the requests that wait for new ones. Positive and
// negative answers have separate limits, so that many negative ones do not displace positive
// ones.
type cache[K comparable, V any] struct {
	bounds
	slot chan struct{} // limits the running reviews

	mu        sync.Mutex
	answers   [2]map[K]answer[V] // negative answers, and positive ones
	asking    map[K]*question[V]
	waiting   int
	waitingOf map[string]int // by user or host
}

type answer[V any] struct {
	value V
	until time.Time
}

type question[V any] struct {
	done  chan struct{}
	value V
	err   error
}

// verdict is an answer, with the time for which it is valid.
type verdict[V any] struct {
	value V
	in    bool // the answer is positive
	lasts time.Duration
}

func newCache[K comparable, V any](b bounds) *cache[K, V] {
	return &cache[K, V]{
		bounds: b, slot: make(chan struct{}, asks),
		answers: [2]map[K]answer[V]{{}, {}}, asking: map[K]*question[V]{}, waitingOf: map[string]int{},
	}
}

// get returns the cached answer for k. If there is none, it calls ask, and concurrent callers for
// the same k share that call. The waiting requests are counted for asker, which is a user or a
// host. The call of ask continues after ctx of its caller has ended, since others may wait for
// it, but at most for limit. If too many requests wait, get returns an [ErrBusy] at once.
func (c *cache[K, V]) get(ctx context.Context, asker string, k K, limit time.Duration, ask func(context.Context) (verdict[V], error)) (V, error) {
	c.mu.Lock()
	var none V
	for _, answers := range c.answers {
		if a, ok := answers[k]; ok && time.Now().Before(a.until) {
			c.mu.Unlock()
			return a.value, nil
		}
	}
	if err := c.enter(asker); err != nil {
		c.mu.Unlock()
		return none, err
	}
	defer c.leave(asker)
	q := c.asking[k]
	if q == nil {
		q = &question[V]{done: make(chan struct{})}
		c.asking[k] = q
		c.mu.Unlock()
		c.ask(context.WithoutCancel(ctx), k, q, limit, ask)
		return q.value, q.err
	}
	c.mu.Unlock()
	select {
	case <-q.done:
		return q.value, q.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// enter counts one waiting request. It returns an error if too many requests wait. The caller holds
// c.mu.
func (c *cache[K, V]) enter(asker string) error {
	switch {
	case c.waiting >= c.bounds.waiting:
		return fmt.Errorf("%w: %d requests of all users; want fewer", ErrBusy, c.waiting)
	case c.waitingOf[asker] >= c.one:
		return fmt.Errorf("%w: %d requests of %q; want fewer", ErrBusy, c.one, asker)
	}
	c.waiting++
	c.waitingOf[asker]++
	return nil
}

func (c *cache[K, V]) leave(asker string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting--
	if c.waitingOf[asker]--; c.waitingOf[asker] == 0 {
		delete(c.waitingOf, asker)
	}
}

func (c *cache[K, V]) ask(ctx context.Context, k K, q *question[V], limit time.Duration, ask func(context.Context) (verdict[V], error)) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var v verdict[V]
	q.err = errors.New("the review has panicked") // replaced unless ask panics
	defer func() {
		c.mu.Lock()
		delete(c.asking, k)
		if q.err == nil && v.lasts > 0 {
			c.put(k, v)
		}
		c.mu.Unlock()
		close(q.done)
	}()
	select {
	case c.slot <- struct{}{}:
		defer func() { <-c.slot }()
		v, q.err = ask(ctx)
		q.value = v.value
	case <-ctx.Done():
		q.err = ctx.Err()
	}
}

// put adds an answer. To make space, it first removes expired answers, then others.
func (c *cache[K, V]) put(k K, v verdict[V]) {
	answers, size := c.answers[0], c.no
	if v.in {
		answers, size = c.answers[1], c.yes
	}
	delete(c.answers[0], k)
	delete(c.answers[1], k)
	if len(answers) >= size {
		now := time.Now()
		for old, a := range answers {
			if !now.Before(a.until) {
				delete(answers, old)
			}
		}
		for old := range answers {
			if len(answers) < size {
				break
			}
			delete(answers, old)
		}
	}
	answers[k] = answer[V]{v.value, time.Now().Add(v.lasts)}
}

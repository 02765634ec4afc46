package auth

import (
	"context"
	"sync"
	"time"
)

// cache remembers answers for a time, at most size of them.
type cache[K comparable, V any] struct {
	size int
	slot chan struct{} // bounds the questions that are out

	mu      sync.Mutex
	answers map[K]answer[V]
	asking  map[K]*question[V]
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

// asks is how many questions are out at a time.
const asks = 32

func newCache[K comparable, V any](size int) *cache[K, V] {
	return &cache[K, V]{
		size: size, slot: make(chan struct{}, asks),
		answers: map[K]answer[V]{}, asking: map[K]*question[V]{},
	}
}

// get returns what is remembered of k, or asks: once for all who want to know
// it now. ask returns how long its answer lasts. Whoever asks does so to the
// end, at most for limit, even if its own ctx ends: others wait for it, too.
func (c *cache[K, V]) get(ctx context.Context, k K, limit time.Duration, ask func(context.Context) (V, time.Duration, error)) (V, error) {
	c.mu.Lock()
	if a, ok := c.answers[k]; ok && time.Now().Before(a.until) {
		c.mu.Unlock()
		return a.value, nil
	}
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
		var none V
		return none, ctx.Err()
	}
}

func (c *cache[K, V]) ask(ctx context.Context, k K, q *question[V], limit time.Duration, ask func(context.Context) (V, time.Duration, error)) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var lasts time.Duration
	select {
	case c.slot <- struct{}{}:
		q.value, lasts, q.err = ask(ctx)
		<-c.slot
	case <-ctx.Done():
		q.err = ctx.Err()
	}
	c.mu.Lock()
	delete(c.asking, k)
	if q.err == nil && lasts > 0 {
		c.put(k, answer[V]{q.value, time.Now().Add(lasts)})
	}
	c.mu.Unlock()
	close(q.done)
}

// put makes room first by what is out of date, then by whatever comes.
func (c *cache[K, V]) put(k K, a answer[V]) {
	if _, ok := c.answers[k]; !ok && len(c.answers) >= c.size {
		now := time.Now()
		for old, a := range c.answers {
			if !now.Before(a.until) {
				delete(c.answers, old)
			}
		}
		for old := range c.answers {
			if len(c.answers) < c.size {
				break
			}
			delete(c.answers, old)
		}
	}
	c.answers[k] = a
}

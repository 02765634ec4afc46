package pressure

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/retry"
)

// A pod that was evicted begins again after firstBackoff at the earliest, doubled
// each time up to maxBackoff, and from the start when it has run for recovers: the
// kubelet's figures for containers that crash.
const (
	firstBackoff = 10 * time.Second
	maxBackoff   = 5 * time.Minute
	recovers     = 2 * maxBackoff
)

// evicted is a pod that was evicted and of which nobody makes another one.
type evicted struct {
	delay time.Duration
	until time.Time // it does not begin before
	again time.Time // when it began again; zero while it has not
}

// backoffs are those of evicted pods. Its methods may be called from any
// goroutine and do not block, but for run.
type backoffs struct {
	news chan struct{} // there is another one; capacity 1

	mu   sync.Mutex
	pods map[types.UID]*evicted
}

func newBackoffs() backoffs {
	return backoffs{news: make(chan struct{}, 1), pods: map[types.UID]*evicted{}}
}

// over reports whether the back-off of a pod that was evicted is over. It begins
// when this is asked for the first time since the eviction.
func (b *backoffs) over(uid types.UID, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.pods[uid]
	if e != nil && e.again.IsZero() {
		return !now.Before(e.until)
	}
	last := time.Duration(0)
	if e != nil && now.Sub(e.again) < recovers {
		last = e.delay
	}
	delay := retry.Backoff{First: firstBackoff, Max: maxBackoff}.Following(last)
	next := &evicted{delay: delay, until: now.Add(delay)}
	b.pods[uid] = next
	select {
	case b.news <- struct{}{}:
	default:
	}
	return false
}

// began notes that a pod whose back-off is over begins again.
func (b *backoffs) began(uid types.UID, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.pods[uid]; e != nil {
		e.again = now
	}
}

// until is when the back-off of a pod is over; zero if it has none.
func (b *backoffs) until(uid types.UID) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.pods[uid]; e != nil {
		return e.until
	}
	return time.Time{}
}

// retain forgets the other pods.
func (b *backoffs) retain(keep func(types.UID) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for uid := range b.pods {
		if !keep(uid) {
			delete(b.pods, uid)
		}
	}
}

// next is when the first back-off is over that is not by then; zero if there is
// none.
func (b *backoffs) next(then time.Time) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	var first time.Time
	for _, e := range b.pods {
		if e.again.IsZero() && e.until.After(then) && (first.IsZero() || e.until.Before(first)) {
			first = e.until
		}
	}
	return first
}

// run calls due at the end of every back-off until ctx ends.
func (b *backoffs) run(ctx context.Context, due func()) {
	var told time.Time
	for ctx.Err() == nil {
		next := b.next(told)
		if next.IsZero() {
			select {
			case <-ctx.Done():
			case <-b.news:
			}
			continue
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
		case <-b.news:
		case <-timer.C:
			told = next
			due()
		}
		timer.Stop()
	}
}

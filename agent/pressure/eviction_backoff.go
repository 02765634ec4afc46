package pressure

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/internal/wake"
)

// An evicted pod starts again after firstBackoff at the earliest. The back-off doubles with each
// eviction, up to maxBackoff. When the pod has run for the time recovers, the back-off starts at
// firstBackoff again. The values are the kubelet's for crashing containers.
const (
	firstBackoff = 10 * time.Second
	maxBackoff   = 5 * time.Minute
	recovers     = 2 * maxBackoff
)

// evicted is an evicted pod that no controller replaces.
type evicted struct {
	delay time.Duration
	until time.Time // the pod does not start before
	again time.Time // time at which the pod started again; zero before that
}

// backoffs has the back-offs of evicted pods. Its methods may be called from any goroutine and,
// except run, do not block.
type backoffs struct {
	news wake.Signal // a back-off was added

	mu   sync.Mutex
	pods map[types.UID]*evicted
}

func newBackoffs() backoffs {
	return backoffs{news: wake.New(), pods: map[types.UID]*evicted{}}
}

// over reports whether the back-off of an evicted pod is over. The back-off begins at the first
// call after the eviction.
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
	b.news.Set()
	return false
}

// began records that a pod starts again after its back-off.
func (b *backoffs) began(uid types.UID, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.pods[uid]; e != nil {
		e.again = now
	}
}

// until returns the end of a pod's back-off; zero if it has none.
func (b *backoffs) until(uid types.UID) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.pods[uid]; e != nil {
		return e.until
	}
	return time.Time{}
}

// retain drops pods for which keep returns false.
func (b *backoffs) retain(keep func(types.UID) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for uid := range b.pods {
		if !keep(uid) {
			delete(b.pods, uid)
		}
	}
}

// next returns the earliest end of a back-off after t. If there is none, it returns the zero time.
func (b *backoffs) next(t time.Time) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	var first time.Time
	for _, e := range b.pods {
		if e.again.IsZero() && e.until.After(t) && (first.IsZero() || e.until.Before(first)) {
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

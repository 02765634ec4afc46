package statusmgr_test

import (
	"context"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// memoryWrite is a successful call of Update or Delete.
type memoryWrite struct {
	At      time.Time
	Pod     *v1.Pod // with the status as published; shared, not to be changed
	Deleted bool
}

// memorySink is a Sink that keeps statuses in memory, and fails and delays calls on demand. A
// restart is a second manager with the same sink.
type memorySink struct {
	limit int

	mu      sync.Mutex
	pods    map[types.UID]*v1.Pod
	history []memoryWrite
	total   int // number of writes since the start
	failed  int
	news    chan struct{} // closed at the next write; nil if no call of Wait waits
	fail    func(*v1.Pod) error
	delay   func(*v1.Pod) time.Duration
}

// newMemorySink returns an empty Sink that remembers the last history writes.
func newMemorySink(history int) *memorySink {
	return &memorySink{limit: max(history, 0), pods: map[types.UID]*v1.Pod{}}
}

// FailWith makes fn be called before each call of the sink. If fn returns an error, the call
// fails with this error. If fn is nil, no call fails.
func (s *memorySink) FailWith(fn func(*v1.Pod) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fn
}

// DelayBy sets the function that returns how long each call of the sink takes. If fn is nil, a
// call takes no time. A call whose context ends first fails.
func (s *memorySink) DelayBy(fn func(*v1.Pod) time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = fn
}

// Update stores a pod's status.
func (s *memorySink) Update(ctx context.Context, pod *v1.Pod, status v1.PodStatus) error {
	p := &v1.Pod{ObjectMeta: *pod.ObjectMeta.DeepCopy(), Status: *status.DeepCopy()}
	return s.call(ctx, pod, memoryWrite{Pod: p})
}

// Delete drops a pod.
func (s *memorySink) Delete(ctx context.Context, pod *v1.Pod) error {
	return s.call(ctx, pod, memoryWrite{Pod: pod.DeepCopy(), Deleted: true})
}

// call makes one call of the sink: it waits for the delay, fails if FailWith says so, and then
// applies w. It holds no lock while it waits, so that calls for different pods overlap as with a
// server.
func (s *memorySink) call(ctx context.Context, pod *v1.Pod, w memoryWrite) error {
	s.mu.Lock()
	fail, delay := s.fail, s.delay
	s.mu.Unlock()
	err := ctx.Err()
	if delay != nil {
		if d := delay(pod); d > 0 {
			select {
			case <-time.After(d):
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
	}
	if err == nil && fail != nil {
		err = fail(pod)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.failed++
		return err
	}
	if w.Deleted {
		delete(s.pods, pod.UID)
	} else {
		s.pods[pod.UID] = w.Pod
	}
	w.At = time.Now()
	s.total++
	s.history = append(s.history, w)
	if n := len(s.history) - s.limit; n > 0 {
		s.history = slices.Delete(s.history, 0, n)
	}
	// Closed and not sent to: any number of callers may wait.
	if s.news != nil {
		close(s.news)
		s.news = nil
	}
	return nil
}

// Get returns a copy of a pod with its status.
func (s *memorySink) Get(uid types.UID) (*v1.Pod, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.pods[uid]
	return p.DeepCopy(), ok
}

// Load returns every status. A manager calls it after a restart.
func (s *memorySink) Load(context.Context) (map[types.UID]v1.PodStatus, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[types.UID]v1.PodStatus{}
	for uid, p := range s.pods {
		out[uid] = *p.Status.DeepCopy()
	}
	return out, nil
}

// History returns the remembered writes, oldest first.
func (s *memorySink) History() []memoryWrite {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.history)
}

// Counts returns the number of calls that succeeded, and that failed.
func (s *memorySink) Counts() (succeeded, failed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total, s.failed
}

// Wait waits until there have been n writes since the start, or until ctx ends. It returns the
// remembered writes, and ctx's error if ctx ended first.
func (s *memorySink) Wait(ctx context.Context, n int) ([]memoryWrite, error) {
	for {
		s.mu.Lock()
		if s.news == nil {
			s.news = make(chan struct{})
		}
		total, news, history := s.total, s.news, slices.Clone(s.history)
		s.mu.Unlock()
		if total >= n {
			return history, nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return history, ctx.Err()
		}
	}
}

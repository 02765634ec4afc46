package statusmgr

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// MemoryWrite is a successful call of Update or Delete.
type MemoryWrite struct {
	At      time.Time
	Pod     *v1.Pod // with the status as published; shared, not to be changed
	Deleted bool
}

// MemorySink is a sink of statusmgr that keeps statuses in memory, for
// tests and for programs that show them themselves.
//
//	sink := statusmgr.NewMemorySink(100)
//	m, err := statusmgr.New(statusmgr.Config{Sink: sink})
//	...
//	writes, err := sink.Wait(ctx, 3) // the first three writes
//	pod, ok := sink.Get("uid")
//
// It fails and delays on demand: [MemorySink.FailWith], [MemorySink.DelayBy]. Its content ends with
// the process. A test simulates a restart by giving the same sink to a second manager.
//
// Its methods may be called from any goroutine.
type MemorySink struct {
	limit int

	mu      sync.Mutex
	pods    map[types.UID]*v1.Pod
	history []MemoryWrite
	total   int // number of writes since the start
	failed  int
	news    chan struct{} // closed at the next write; nil if no call of Wait waits
	fail    func(*v1.Pod) error
	delay   func(*v1.Pod) time.Duration
}

// NewMemorySink returns an empty Sink that remembers the last history writes.
func NewMemorySink(history int) *MemorySink {
	return &MemorySink{limit: max(history, 0), pods: map[types.UID]*v1.Pod{}}
}

// FailWith makes fn be called before each call of the sink. If fn returns an error, the call
// fails with this error. If fn is nil, no call fails.
func (s *MemorySink) FailWith(fn func(*v1.Pod) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fn
}

// DelayBy sets the function that returns how long each call of the sink takes. If fn is nil, a
// call takes no time. A call whose context ends first fails.
func (s *MemorySink) DelayBy(fn func(*v1.Pod) time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = fn
}

// Update stores a pod's status.
func (s *MemorySink) Update(ctx context.Context, pod *v1.Pod, status v1.PodStatus) error {
	p := &v1.Pod{ObjectMeta: *pod.ObjectMeta.DeepCopy(), Status: *status.DeepCopy()}
	return s.call(ctx, pod, MemoryWrite{Pod: p})
}

// Delete drops a pod.
func (s *MemorySink) Delete(ctx context.Context, pod *v1.Pod) error {
	return s.call(ctx, pod, MemoryWrite{Pod: pod.DeepCopy(), Deleted: true})
}

// call makes one call of the sink: it waits for the delay, fails if FailWith says so, and then
// applies w. It holds no lock while it waits, so that calls for different pods overlap as with a
// server.
func (s *MemorySink) call(ctx context.Context, pod *v1.Pod, w MemoryWrite) error {
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
func (s *MemorySink) Get(uid types.UID) (*v1.Pod, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.pods[uid]
	return p.DeepCopy(), ok
}

// List returns copies of all pods, sorted by namespace and name.
func (s *MemorySink) List() []*v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*v1.Pod, 0, len(s.pods))
	for _, p := range s.pods {
		out = append(out, p.DeepCopy())
	}
	slices.SortFunc(out, func(a, b *v1.Pod) int {
		return strings.Compare(a.Namespace+"/"+a.Name+"/"+string(a.UID), b.Namespace+"/"+b.Name+"/"+string(b.UID))
	})
	return out
}

// Load returns every status. A manager calls it after a restart.
func (s *MemorySink) Load(context.Context) (map[types.UID]v1.PodStatus, error) {
	out := map[types.UID]v1.PodStatus{}
	for _, p := range s.List() {
		out[p.UID] = p.Status
	}
	return out, nil
}

// History returns the remembered writes, oldest first.
func (s *MemorySink) History() []MemoryWrite {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.history)
}

// Counts returns the number of calls that succeeded, and that failed.
func (s *MemorySink) Counts() (succeeded, failed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total, s.failed
}

// Wait waits until there have been n writes since the start, or until ctx ends. It returns the
// remembered writes, and ctx's error if ctx ended first.
func (s *MemorySink) Wait(ctx context.Context, n int) ([]MemoryWrite, error) {
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

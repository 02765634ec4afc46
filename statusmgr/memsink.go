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

// MemoryWrite is a call that succeeded.
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
// It fails and delays on demand: [MemorySink.FailWith], [MemorySink.DelayBy]. It survives
// nothing; in a test, the same sink in a second manager is a restart.
//
// Its methods may be called from any goroutine.
type MemorySink struct {
	limit int

	mu      sync.Mutex
	pods    map[types.UID]*v1.Pod
	history []MemoryWrite
	total   int // of writes ever
	failed  int
	news    chan struct{} // closed at the next write; nil, if nobody waits for it
	fail    func(*v1.Pod) error
	delay   func(*v1.Pod) time.Duration
}

// NewMemorySink returns an empty Sink that remembers so many writes; the oldest are
// forgotten.
func NewMemorySink(history int) *MemorySink {
	return &MemorySink{limit: max(history, 0), pods: map[types.UID]*v1.Pod{}}
}

// FailWith asks fn, before each call, whether it fails; nil: none does.
func (s *MemorySink) FailWith(fn func(*v1.Pod) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fn
}

// DelayBy asks fn, before each call, how long it takes; nil: no time. A call
// whose context ends first fails.
func (s *MemorySink) DelayBy(fn func(*v1.Pod) time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = fn
}

// Update keeps a pod's status.
func (s *MemorySink) Update(ctx context.Context, pod *v1.Pod, status v1.PodStatus) error {
	p := &v1.Pod{ObjectMeta: *pod.ObjectMeta.DeepCopy(), Status: *status.DeepCopy()}
	return s.call(ctx, pod, MemoryWrite{Pod: p})
}

// Delete drops a pod.
func (s *MemorySink) Delete(ctx context.Context, pod *v1.Pod) error {
	return s.call(ctx, pod, MemoryWrite{Pod: pod.DeepCopy(), Deleted: true})
}

// call is one call of the sink: delay, failure, then the effect. It holds no lock
// while it waits, so that calls for different pods overlap as they do with a
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

// Get returns a pod with its status. It is the caller's own.
func (s *MemorySink) Get(uid types.UID) (*v1.Pod, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.pods[uid]
	return p.DeepCopy(), ok
}

// List returns every pod, by namespace and name. They are the caller's own.
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

// Load returns every status, as for a manager that was restarted.
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

// Wait returns the remembered writes once there have been n in all, or ctx's
// error.
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

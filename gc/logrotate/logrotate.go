package logrotate

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/internal/safefile"
)

// The logs that are watched, as a heap by the time of their next look. Run takes the first
// one out, looks at its size, and puts it back with a later time. A log stays out of the
// heap while it is rotated, so that one goroutine at a time works on it.

// Runtime is what this package asks of a container runtime; *cri.Client has it.
type Runtime interface {
	// ReopenContainerLog has the container's log written to a file of its
	// name, which is made if it is not there. It is called for several containers
	// at a time, and ends with ctx.
	ReopenContainerLog(ctx context.Context, id string) error
}

// Log is the log of a container that runs. A dead container's log does not grow, and needs
// no watching.
type Log struct {
	ID   string // the container's
	Pod  types.UID
	Path string // absolute; the directory above its own is the pod's
}

// Config holds what a Manager needs. Runtime is required; the zero value of
// every other field means the default named beside it.
type Config struct {
	Runtime Runtime
	// MaxSize is the size in bytes from which a log is rotated, MaxFiles how
	// many files a container has at most, the log included. The kubelet's, 10
	// MiB and 5.
	MaxSize  int64
	MaxFiles int
	// PodBudget bounds the bytes of all logs of a pod; 0 does not.
	PodBudget int64
	// Burst is the rate in bytes a second with which an idle log is to be
	// reckoned with; 10 MB.
	Burst int64
	// Longest is the longest time between two looks at a log that grows, or
	// whose next write the kernel does not tell of. The kubelet's period, 10s.
	Longest time.Duration
	// Poll has idle logs looked at every Longest, instead of having the kernel
	// tell of writes: it does not tell of those of another machine, as a
	// virtual one that shares the directory.
	Poll bool
	// Running lists the logs of all containers that run, as a net below Watch
	// and Forget. It is called every Interval; never.
	Running  func(ctx context.Context) ([]Log, error)
	Interval time.Duration // 5m

	Timeout  time.Duration // of each call of the Runtime; 2m
	Parallel int           // rotations at a time, 4
	Workers  int           // compressions at a time; the kubelet's, 1

	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported
}

const (
	// The kubelet's containerLogMaxSize in bytes, containerLogMaxFiles,
	// containerLogMonitorInterval (defaultLongest) and containerLogMaxWorkers, and its
	// runtimeRequestTimeout.
	defaultMaxSize     = 10 << 20
	defaultMaxFiles    = 5
	defaultBurst       = 10_000_000
	defaultLongest     = 10 * time.Second
	defaultLogInterval = 5 * time.Minute
	defaultLogTimeout  = 2 * time.Minute
	defaultParallel    = 4
	defaultWorkers     = 1
	// leastLimit is the size in bytes below which no budget presses a log's limit: otherwise
	// the logs of a pod with many containers would be rotated all the time.
	leastLimit = 64 << 10
)

// watched is a log that is watched. Manager.mu guards it.
type watched struct {
	Log
	since time.Time // when it was given to Watch
	pace  pace
	// due is the time of the next look.
	due     time.Time
	index   int    // in the queue; -1 while it is looked at or rotated
	armed   bool   // the kernel reports the next write
	gone    bool   // forgotten; whoever still has it must not put it back
	failing int    // in a row
	told    string // the failure that was logged last
}

// Manager limits the logs of containers. Its methods may be called from any goroutine.
type Manager struct {
	cfg Config
	met *metrics
	// idle and create are replaced in tests.
	idle   func() idle
	create func(dir *safefile.Dir, name string, mode os.FileMode) (*os.File, error)
	// disk has the calls into file systems, by path of the log.
	disk detached.Queue
	// changed wakes Run when the queue has; its buffer holds one.
	changed chan struct{}
	slots   chan struct{} // of rotations
	packing chan struct{} // slots of compressions

	// mu guards the fields below. It is never held across a call of the runtime or of
	// the disk.
	mu    sync.Mutex
	logs  map[string]*watched // by container ID
	pods  map[types.UID]int   // how many logs each has
	queue queue
}

// New checks cfg and returns a Manager at rest. The error names every field that is wrong.
// Nothing is looked at before Run.
func New(cfg Config) (*Manager, error) {
	set(&cfg.MaxSize, defaultMaxSize)
	set(&cfg.MaxFiles, defaultMaxFiles)
	set(&cfg.Burst, defaultBurst)
	set(&cfg.Longest, defaultLongest)
	set(&cfg.Interval, defaultLogInterval)
	set(&cfg.Timeout, defaultLogTimeout)
	set(&cfg.Parallel, defaultParallel)
	set(&cfg.Workers, defaultWorkers)
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	var errs []error
	if cfg.Runtime == nil {
		errs = append(errs, errors.New("LogConfig.Runtime is required"))
	}
	if cfg.MaxSize < 0 || cfg.Burst < 0 {
		errs = append(errs, fmt.Errorf("LogConfig.MaxSize %d and Burst %d: want 0 (the default) or more; to rotate nothing, run no Manager", cfg.MaxSize, cfg.Burst))
	}
	// The log and one rotated file: with fewer, a rotation would throw away all that was
	// written.
	if cfg.MaxFiles < 2 {
		errs = append(errs, fmt.Errorf("LogConfig.MaxFiles %d: want 0 (the default), or 2 or more", cfg.MaxFiles))
	}
	// Half of the budget is for the logs in use, one of which takes leastLimit.
	if cfg.PodBudget != 0 && cfg.PodBudget < 2*leastLimit {
		errs = append(errs, fmt.Errorf("LogConfig.PodBudget %d: want 0 (no limit), or %d or more", cfg.PodBudget, 2*leastLimit))
	}
	if cfg.Longest < shortest {
		errs = append(errs, fmt.Errorf("LogConfig.Longest %v: want 0 (the default), or %v or more", cfg.Longest, shortest))
	}
	if cfg.Interval < 0 || cfg.Timeout < 0 || cfg.Parallel < 0 || cfg.Workers < 0 {
		errs = append(errs, fmt.Errorf("LogConfig.Interval %v, Timeout %v, Parallel %d and Workers %d: want 0 (the default) or more",
			cfg.Interval, cfg.Timeout, cfg.Parallel, cfg.Workers))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("logrotate: %w", err)
	}
	met, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("logrotate: %w", err)
	}
	idle := newIdle
	if cfg.Poll {
		idle = poll
	}
	return &Manager{
		cfg: cfg, met: met, disk: detached.Queue{Limit: maxHung}, idle: idle, create: create, changed: make(chan struct{}, 1),
		slots: make(chan struct{}, cfg.Parallel), packing: make(chan struct{}, cfg.Workers),
		logs: map[string]*watched{}, pods: map[types.UID]int{},
	}, nil
}

// set gives a field that is zero its default.
func set[T int | int64 | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

// Watch watches a log from now on. One with an ID that is watched already takes its place.
// It does not block, and may be called before Run. A path that is not absolute is that of a
// container without a log.
func (m *Manager) Watch(l Log) {
	if l.ID == "" || !filepath.IsAbs(l.Path) {
		return // a container without a log
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.logs[l.ID]; w != nil {
		if w.Log == l {
			return
		}
		m.forget(w)
	}
	now := time.Now()
	// Due at once: what an earlier process left may be above its limit.
	w := &watched{Log: l, since: now, due: now, index: -1}
	m.logs[l.ID] = w
	m.pods[l.Pod]++
	heap.Push(&m.queue, w)
	m.poke()
}

// Forget ends the watching of a container's log. Its files stay. A rotation under way is not
// waited for.
func (m *Manager) Forget(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.logs[id]; w != nil {
		m.forget(w)
	}
}

// forget is Forget with m.mu held.
func (m *Manager) forget(w *watched) {
	delete(m.logs, w.ID)
	w.gone = true
	if m.pods[w.Pod]--; m.pods[w.Pod] == 0 {
		delete(m.pods, w.Pod)
	}
	// Without an index a look or a rotation has it, which will see gone.
	if w.index >= 0 {
		heap.Remove(&m.queue, w.index)
	}
}

// poke has Run look at the queue anew. One signal is enough for all that came before it.
func (m *Manager) poke() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// limit is the size in bytes from which a log of a pod is rotated. With a budget half of it
// is shared out evenly among the pod's logs in use; the other half is for rotated files.
// m.mu is held.
func (m *Manager) limit(pod types.UID) int64 {
	limit := m.cfg.MaxSize
	if b := m.cfg.PodBudget; b > 0 {
		limit = min(limit, max(leastLimit, b/2/int64(max(1, m.pods[pod]))))
	}
	return limit
}

// queue is a heap of logs by when they are due, for package heap. Each log has its index in
// it, so that it can be moved or taken out.
type queue []*watched

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push is for package heap.
func (q *queue) Push(x any) {
	w := x.(*watched)
	w.index = len(*q)
	*q = append(*q, w)
}

// Pop is for package heap.
func (q *queue) Pop() any {
	old := *q
	w := old[len(old)-1]
	// The array must not keep a log that was forgotten.
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	w.index = -1
	return w
}

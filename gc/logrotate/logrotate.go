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

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/internal/wake"
)

// The watched logs, as a heap by the time of their next check. Run takes the first one, checks
// its size, and puts it back with a later time. A log is not in the heap while it is rotated, so
// only one goroutine works on it.

// Runtime is the part of a container runtime that this package uses; *cri.Client implements it.
type Runtime interface {
	// ReopenContainerLog makes the runtime write to the file with the log's name, which it
	// creates if it is missing. It is called concurrently for different containers, and must
	// return when ctx ends.
	ReopenContainerLog(ctx context.Context, id string) error
}

// Log is the log of a running container. Logs of dead containers do not grow.
type Log struct {
	ID   string // the container's ID
	Pod  types.UID
	Path string // absolute; the directory above its own is the pod's
}

// Config holds what a Manager needs. Runtime is required; the zero value of
// every other field means the default named beside it.
type Config struct {
	Runtime Runtime
	// MaxSize is the size in bytes at which a log is rotated. MaxFiles limits the files of a
	// container, including the current log. The defaults are the kubelet's: 10 MiB and 5.
	MaxSize  int64
	MaxFiles int
	// PodBudget limits all logs of a pod together, in bytes. If it is 0, there is no limit.
	PodBudget int64
	// Longest is the longest time between two checks of a log that grows, or that has no inotify
	// watch. The default is 10 s, as in the kubelet.
	Longest time.Duration
	// Poll turns off inotify: idle logs are checked every Longest. It is for logs that another
	// machine writes, such as a virtual machine that shares the directory.
	Poll bool
	// Running lists the logs of all running containers, in case a call of Watch or Forget was
	// missed. It is called every five minutes. If Running is nil, nothing is called.
	Running func(ctx context.Context) ([]Log, error)
	// Workers is the number of compressions at a time. The default is 1, as in the kubelet.
	Workers int

	Log *zap.Logger // if nil, nothing is logged
}

const (
	// The kubelet's containerLogMaxSize in bytes, containerLogMaxFiles,
	// containerLogMonitorInterval (defaultLongest) and containerLogMaxWorkers.
	defaultMaxSize  = 10 << 20
	defaultMaxFiles = 5
	defaultLongest  = 10 * time.Second
	defaultWorkers  = 1
	// burstRate is the rate in bytes a second at which a quiet log may suddenly grow. The times of
	// checks depend on it.
	burstRate = 10_000_000
	// listInterval is the time between two calls of Config.Running.
	listInterval = 5 * time.Minute
	// callTimeout limits each call of the Runtime, as the kubelet's runtimeRequestTimeout.
	callTimeout = 2 * time.Minute
	// parallel is the number of rotations at a time.
	parallel = 4
	// leastLimit is the smallest limit of a log that a pod's budget can cause, in bytes:
	// otherwise the logs of a pod with many containers would be rotated all the time.
	leastLimit = 64 << 10
)

// watched is a watched log. Manager.mu guards it.
type watched struct {
	Log
	since time.Time // time of Watch
	pace  pace
	// due is the time of the next check.
	due     time.Time
	index   int    // index in the queue; -1 while the log is checked or rotated
	armed   bool   // the kernel reports the next write
	gone    bool   // the log was forgotten and must not be put back into the queue
	failing int    // number of failures in a row
	told    string // the last logged error
}

// Manager limits the logs of containers. Its methods may be called from any goroutine.
type Manager struct {
	cfg Config
	// idle and create are replaced in tests.
	idle   func() idle
	create func(dir *safefile.Dir, name string, mode os.FileMode) (*os.File, error)
	burst  int64 // burstRate; less in tests
	// disk makes the file system calls, by path of the log.
	disk    detached.Queue
	changed wake.Signal   // set when the queue has changed
	slots   chan struct{} // slots of rotations
	packing chan struct{} // slots of compressions

	// mu guards the fields below. It is never held across a call of the runtime or of
	// the disk.
	mu    sync.Mutex
	logs  map[string]*watched // by container ID
	pods  map[types.UID]int   // number of logs
	queue queue
}

// New checks cfg and returns a Manager, which Run starts. The error names every invalid field.
func New(cfg Config) (*Manager, error) {
	set(&cfg.MaxSize, defaultMaxSize)
	set(&cfg.MaxFiles, defaultMaxFiles)
	set(&cfg.Longest, defaultLongest)
	set(&cfg.Workers, defaultWorkers)
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	var errs []error
	if cfg.Runtime == nil {
		errs = append(errs, errors.New("Config.Runtime is required"))
	}
	if cfg.MaxSize < 0 {
		errs = append(errs, fmt.Errorf("Config.MaxSize %d: want 0 (the default) or more; to rotate nothing, run no Manager", cfg.MaxSize))
	}
	// The log and one rotated file: with fewer, a rotation would remove everything.
	if cfg.MaxFiles < 2 {
		errs = append(errs, fmt.Errorf("Config.MaxFiles %d: want 0 (the default), or 2 or more", cfg.MaxFiles))
	}
	// Half of the budget is for the logs in use, one of which takes leastLimit.
	if cfg.PodBudget != 0 && cfg.PodBudget < 2*leastLimit {
		errs = append(errs, fmt.Errorf("Config.PodBudget %d: want 0 (no limit), or %d or more", cfg.PodBudget, 2*leastLimit))
	}
	if cfg.Longest < shortest {
		errs = append(errs, fmt.Errorf("Config.Longest %v: want 0 (the default), or %v or more", cfg.Longest, shortest))
	}
	if cfg.Workers < 0 {
		errs = append(errs, fmt.Errorf("Config.Workers %d: want 0 (the default) or more", cfg.Workers))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("logrotate: %w", err)
	}
	idle := newIdle
	if cfg.Poll {
		idle = poll
	}
	return &Manager{
		cfg: cfg, disk: detached.Queue{Limit: maxHung}, idle: idle, create: create, burst: burstRate, changed: wake.New(),
		slots: make(chan struct{}, parallel), packing: make(chan struct{}, cfg.Workers),
		logs: map[string]*watched{}, pods: map[types.UID]int{},
	}, nil
}

// set sets the default of a zero field.
func set[T int | int64 | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

// Watch adds a log, or replaces the log of the same container. It does not block, and may be
// called before Run. A log without an absolute path is ignored.
func (m *Manager) Watch(l Log) {
	if l.ID == "" || !filepath.IsAbs(l.Path) {
		return // the container has no log
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
	// Due at once: it may already exceed its limit.
	w := &watched{Log: l, since: now, due: now, index: -1}
	m.logs[l.ID] = w
	m.pods[l.Pod]++
	heap.Push(&m.queue, w)
	m.changed.Set()
}

// Forget stops watching a container's log. The files stay. It does not wait for a rotation under
// way.
func (m *Manager) Forget(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.logs[id]; w != nil {
		m.forget(w)
	}
}

// forget does the work of Forget. The caller holds m.mu.
func (m *Manager) forget(w *watched) {
	delete(m.logs, w.ID)
	w.gone = true
	if m.pods[w.Pod]--; m.pods[w.Pod] == 0 {
		delete(m.pods, w.Pod)
	}
	// Without an index it is being checked or rotated: gone ends that.
	if w.index >= 0 {
		heap.Remove(&m.queue, w.index)
	}
}

// limit returns the size in bytes at which a log of a pod is rotated. With a budget, half of the
// budget is divided among the pod's logs in use; the other half is for rotated files. The caller
// holds m.mu.
func (m *Manager) limit(pod types.UID) int64 {
	limit := m.cfg.MaxSize
	if b := m.cfg.PodBudget; b > 0 {
		limit = min(limit, max(leastLimit, b/2/int64(max(1, m.pods[pod]))))
	}
	return limit
}

// queue is a heap of logs by due time, for package heap. Each log stores its index, so that it
// can be moved or removed.
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
	// The array must not keep a forgotten log alive.
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	w.index = -1
	return w
}

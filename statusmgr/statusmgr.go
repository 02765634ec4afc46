package statusmgr

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podstatus"
)

// Sink is where statuses go. Calls for one pod never overlap; those for
// different pods do. An error means that the call is made again later.
type Sink interface {
	// Update publishes a pod's status. pod and status are shared: they must
	// not be changed.
	Update(ctx context.Context, pod *v1.Pod, status v1.PodStatus) error
	// Delete says that nothing is left of a pod that was to be deleted.
	Delete(ctx context.Context, pod *v1.Pod) error
}

// Config holds what a Manager needs. The zero value of every field means the
// default named beside it.
type Config struct {
	// Sink gets every status; nobody.
	Sink Sink
	// CouldHaveRunning tells that containers of a pod may run; never.
	CouldHaveRunning func(types.UID) bool

	Parallel   int           // writes to the sink at a time; 8
	Timeout    time.Duration // of one write; 30s
	Backoff    time.Duration // after a first failed write, doubled by each further one; 1s
	MaxBackoff time.Duration // its limit; 1m

	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported
}

func (c Config) withDefaults() Config {
	if c.CouldHaveRunning == nil {
		c.CouldHaveRunning = func(types.UID) bool { return false }
	}
	if c.Parallel == 0 {
		c.Parallel = 8
	}
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	if c.Backoff == 0 {
		c.Backoff = time.Second
	}
	if c.MaxBackoff == 0 {
		c.MaxBackoff = time.Minute
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Parallel < 0 {
		errs = append(errs, fmt.Errorf("Config.Parallel is %d; want a positive number", c.Parallel))
	}
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("Config.Timeout is %v; want a positive duration", c.Timeout))
	}
	if c.Backoff < 0 || c.MaxBackoff < c.Backoff {
		errs = append(errs, fmt.Errorf("Config.Backoff %v and MaxBackoff %v: want positive durations, the second not below the first", c.Backoff, c.MaxBackoff))
	}
	return errors.Join(errs...)
}

// Manager keeps the statuses. Its methods may be called from any goroutine and
// never wait for the sink.
type Manager struct {
	cfg Config
	met *metrics

	mu      sync.Mutex
	entries map[types.UID]*entry
	subs    map[*subscription]bool
	ctx     context.Context // Run's; nil before
	queue   publishQueue
	wg      sync.WaitGroup
}

// entry is one pod's status. Manager.mu guards it; what it points to is never
// changed, only replaced.
type entry struct {
	pod     *v1.Pod
	status  *v1.PodStatus
	version uint64
	// finished tells that the pod is over and nothing of it is left.
	finished bool

	published uint64 // the version that the sink has
	deleted   bool   // the sink was told
	queued    bool
	urgent    bool
	failures  int         // in a row
	retry     *time.Timer // nil unless the next try has to wait
	since     time.Time   // of the oldest change that the sink has not got
}

// New checks cfg and returns a Manager at rest.
func New(cfg Config) (*Manager, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("statusmgr: %w", err)
	}
	met, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("statusmgr: %w", err)
	}
	return &Manager{
		cfg: cfg, met: met,
		entries: map[types.UID]*entry{},
		subs:    map[*subscription]bool{},
		queue:   publishQueue{free: cfg.Parallel, busy: map[types.UID]bool{}},
	}, nil
}

// Run publishes until ctx ends, and returns nil when no call of the sink is
// under way. It may be called once.
func (m *Manager) Run(ctx context.Context) error {
	m.mu.Lock()
	m.ctx = ctx
	for _, e := range m.entries {
		m.enqueue(e)
	}
	m.mu.Unlock()
	<-ctx.Done()
	m.mu.Lock()
	for _, e := range m.entries {
		if e.retry != nil {
			e.retry.Stop()
		}
	}
	for s := range m.subs {
		s.close()
	}
	m.mu.Unlock()
	m.wg.Wait()
	return nil
}

// Get returns a pod's status. It is the caller's own.
func (m *Manager) Get(uid types.UID) (v1.PodStatus, bool) {
	m.mu.Lock()
	e := m.entries[uid]
	var st *v1.PodStatus
	if e != nil {
		st = e.status
	}
	m.mu.Unlock()
	if st == nil {
		return v1.PodStatus{}, false
	}
	return *st.DeepCopy(), true
}

// Phase returns a pod's phase without copying its status.
func (m *Manager) Phase(uid types.UID) (v1.PodPhase, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries[uid]; e != nil {
		return e.status.Phase, true
	}
	return "", false
}

// Set takes a freshly computed status of a pod. It tells whether that said
// anything new. The pod is kept and must not be changed; the status is copied.
// Conditions that others write are kept as given, and are never news.
func (m *Manager) Set(pod *v1.Pod, status v1.PodStatus) (changed bool) {
	next := status.DeepCopy()
	next.ObservedGeneration = max(next.ObservedGeneration, pod.Generation)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.accept(pod, next, false, pod.DeletionTimestamp != nil)
}

// Terminate says that a pod is over and nothing of it is left on the node.
// Containers that have no end are given one, and the phase becomes terminal,
// except for that of static pods.
func (m *Manager) Terminate(pod *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := &pod.Status
	if e := m.entries[pod.UID]; e != nil {
		st = e.status
	}
	m.accept(pod, terminatedStatus(pod, st.DeepCopy()), true, true)
}

// SetReady notes that a container became ready, or is it no longer.
func (m *Manager) SetReady(uid types.UID, containerID string, ready bool) {
	m.change(uid, containerID, func(c *v1.ContainerStatus, st *v1.PodStatus, pod *v1.Pod) bool {
		if c.Ready == ready {
			return false
		}
		c.Ready = ready
		podstatus.SetReadiness(pod, st, time.Now())
		return true
	})
}

// SetStarted notes that a container has started up, or has not yet.
func (m *Manager) SetStarted(uid types.UID, containerID string, started bool) {
	m.change(uid, containerID, func(c *v1.ContainerStatus, _ *v1.PodStatus, _ *v1.Pod) bool {
		if c.Started != nil && *c.Started == started {
			return false
		}
		c.Started = &started
		return true
	})
}

// change changes one container's status, if it is known.
func (m *Manager) change(uid types.UID, containerID string, fn func(*v1.ContainerStatus, *v1.PodStatus, *v1.Pod) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[uid]
	if e == nil {
		return
	}
	st := e.status.DeepCopy()
	for _, list := range [][]v1.ContainerStatus{st.ContainerStatuses, st.InitContainerStatuses} {
		for i := range list {
			if sameContainer(list[i].ContainerID, containerID) && fn(&list[i], st, e.pod) {
				m.accept(e.pod, st, false, false)
				return
			}
		}
	}
}

// Retain drops every pod that keep does not name.
func (m *Manager) Retain(keep map[types.UID]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid, e := range m.entries {
		if keep[uid] {
			continue
		}
		if e.retry != nil {
			e.retry.Stop()
		}
		delete(m.entries, uid)
		m.notify(Change{UID: uid, Removed: true})
	}
}

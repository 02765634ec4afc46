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
// different pods do. They must end when ctx does. An error means that the call
// is made again later; [ErrGone], that there is no use in that.
type Sink interface {
	// Update publishes a pod's status. pod and status are shared: they must
	// not be changed. After a restart, pod may be no more than its metadata.
	Update(ctx context.Context, pod *v1.Pod, status v1.PodStatus) error
	// Delete says that nothing is left of a pod that was to be deleted.
	Delete(ctx context.Context, pod *v1.Pod) error
}

// ErrGone is for a [Sink] that finds that the pod is not there, or is another
// one: there is nothing to tell until its status changes.
var ErrGone = errors.New("the pod is not there")

// Config holds what a Manager needs. The zero value of every field means the
// default named beside it. Its functions are called without any lock held.
type Config struct {
	// Sink gets every status; nobody.
	Sink Sink
	// Store keeps what the sink has not taken over a crash of the agent;
	// nothing is kept.
	Store Store
	// CouldHaveRunning tells that containers of a pod may run; never.
	CouldHaveRunning func(types.UID) bool
	// Reclaimed tells that nothing is left of a pod on the node, so that the
	// sink can be told to delete it; always.
	Reclaimed func(types.UID) bool
	// PublishAs is the object under which a pod's status is published, which
	// for a static pod is its mirror; the pod itself. False means that there
	// is none now: [Manager.Republish] tells when there is.
	PublishAs func(*v1.Pod) (*v1.Pod, bool)

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
	if c.Reclaimed == nil {
		c.Reclaimed = func(types.UID) bool { return true }
	}
	if c.PublishAs == nil {
		c.PublishAs = func(pod *v1.Pod) (*v1.Pod, bool) { return pod, true }
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
	serial  uint64 // the newest version
	subs    map[*subscription]bool
	ctx     context.Context // Run's; nil before
	queue   publishQueue
	wg      sync.WaitGroup // of writes and subscribers

	restoring sync.Mutex // held by Restore
	restored  bool
	store     keeper
}

// entry is one pod's status. Manager.mu guards it; what it points to is never
// changed, only replaced.
type entry struct {
	pod     *v1.Pod
	status  *v1.PodStatus
	version uint64 // no two are the same
	// finished tells that the pod is over and nothing of it is left.
	finished bool
	restored bool // by an earlier life of the agent; none was Set in this one

	// What the sink has.
	published uint64        // the version
	shown     *v1.PodStatus // nil, if that is not known
	shownAs   types.UID     // of the object whose status it is
	mirrored  bool          // that is a mirror
	unsure    bool          // whether it still has shown
	held      bool          // a terminal phase was held back
	deleted   bool          // it was told to

	// How it gets there.
	class    class // of the queue that it stands in
	urgent   bool
	asked    bool // Republish was called
	homeless bool // there is no object to publish it under
	troubled bool // a write failed, or takes long
	failures int  // in a row
	waits    int  // for others, in a row
	retry    *time.Timer
	patient  bool      // retry waits for others, not after a failure
	since    time.Time // of the oldest change that the sink has not got
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
		queue:   newPublishQueue(cfg.Parallel),
		store:   newKeeper(),
	}, nil
}

// Run publishes until ctx ends, and returns nil when no call of the sink is
// under way and what it has not taken is stored. It may be called once.
func (m *Manager) Run(ctx context.Context) error {
	if err := m.Restore(ctx); err != nil && ctx.Err() == nil {
		m.cfg.Log.Error("statuses of before the restart are not known", zap.Error(err))
	}
	m.mu.Lock()
	m.ctx = ctx
	for uid, e := range m.entries {
		m.saveSoon(uid)
		m.enqueue(e)
	}
	m.mu.Unlock()
	stopKeeping := m.keep()
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
	stopKeeping()
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
// anything new. The pod is kept and must not be changed. The status is the
// manager's from then on: what its lists and pointers refer to must not be
// changed either. Conditions that others write are kept as given, and are
// never news.
func (m *Manager) Set(pod *v1.Pod, status v1.PodStatus) (changed bool) {
	status.ObservedGeneration = max(status.ObservedGeneration, pod.Generation)
	before := m.lock(pod)
	defer m.mu.Unlock()
	return m.accept(pod, before, &status, false)
}

// lock locks. Of a pod that the manager does not know it returns what the
// world knows.
func (m *Manager) lock(pod *v1.Pod) *v1.PodStatus {
	m.mu.Lock()
	if m.entries[pod.UID] != nil {
		return nil
	}
	m.mu.Unlock()
	before := &pod.Status
	if as, ok := m.cfg.PublishAs(pod); ok {
		before = &as.Status
	}
	m.mu.Lock()
	return before
}

// Terminate says that a pod is over and nothing of it is left on the node.
// Containers that have no end are given one, and the phase becomes terminal,
// except for that of static pods.
func (m *Manager) Terminate(pod *v1.Pod) {
	before := m.lock(pod)
	defer m.mu.Unlock()
	st := before
	if e := m.entries[pod.UID]; e != nil {
		st = e.status
	}
	m.accept(pod, before, terminatedStatus(pod, st.DeepCopy()), true)
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

// change changes one container's status, if it is known. One of before a
// restart is not: what was read back has no spec to judge the pod by.
func (m *Manager) change(uid types.UID, containerID string, fn func(*v1.ContainerStatus, *v1.PodStatus, *v1.Pod) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[uid]
	if e == nil || e.restored {
		return
	}
	st := e.status.DeepCopy()
	for _, list := range [][]v1.ContainerStatus{st.ContainerStatuses, st.InitContainerStatuses} {
		for i := range list {
			if sameContainer(list[i].ContainerID, containerID) && fn(&list[i], st, e.pod) {
				m.accept(e.pod, nil, st, false)
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
		if !keep[uid] {
			m.drop(uid, e)
		}
	}
}

// Forget drops one pod: the next status that is Set is its first, and may be
// any.
func (m *Manager) Forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries[uid]; e != nil {
		m.drop(uid, e)
	}
}

// drop forgets a pod. The caller holds m.mu.
func (m *Manager) drop(uid types.UID, e *entry) {
	if e.retry != nil {
		e.retry.Stop()
	}
	delete(m.entries, uid)
	m.saveSoon(uid)
	m.notify(Change{UID: uid, Removed: true})
}

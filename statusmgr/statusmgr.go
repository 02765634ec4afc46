package statusmgr

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/internal/subscription"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podstatus"
)

// The Manager and its entry points. Each takes m.mu, changes an entry, lets the
// state machine take a step and returns; the sink and the store are left to other
// goroutines.

// Manager keeps the statuses. Its methods may be called from any goroutine and
// never wait for the sink.
type Manager struct {
	cfg    Config
	met    *metrics
	delays *retry.Backoff // delays after failed writes

	mu      sync.Mutex
	entries map[types.UID]*entry
	serial  uint64 // the last version that was given to a status
	subs    subscription.List[Change]
	ctx     context.Context // context of Run; nil before Run is called
	queue   publishQueue
	wg      sync.WaitGroup // counts goroutines of writes and subscribers

	// restoring guards restored. mu cannot guard it, since Restore waits for the disk and the sink.
	restoring sync.Mutex // held by Restore
	restored  bool
	store     storeWriter
}

// entry is one pod's status and its publication. Manager.mu guards it; values
// that it points to are never changed, only replaced.
type entry struct {
	pod      *v1.Pod
	status   *v1.PodStatus
	life     uint32
	shown    Shown
	runs     observed.Answer
	why      podlife.Cause
	finished bool // the pod has ended and nothing of it is left on the node
	restored bool // the status is from before a restart, and no other was Set since

	state                // state of the publication
	sent   *v1.PodStatus // the status that the sink was last given; nil if that is not known
	sentTo types.UID     // UID of the object under which sent was published
	class  class         // the queue that the entry is in
	retry  *time.Timer   // nil unless it is armed
}

// New checks cfg and returns a Manager. It publishes only during Run.
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
		cfg: cfg, met: met, delays: &retry.Backoff{First: firstBackoff, Max: cfg.MaxBackoff},
		entries: map[types.UID]*entry{},
		queue:   newPublishQueue(cfg.Parallel),
		store:   newStoreWriter(),
	}, nil
}

// Run publishes statuses until ctx ends. It returns nil when the calls of the sink have returned
// and unpublished statuses are stored. It may be called once.
func (m *Manager) Run(ctx context.Context) error {
	// Statuses that cannot be restored are no reason to publish nothing.
	err := m.Restore(ctx)
	m.mu.Lock()
	m.ctx = ctx
	// Entries of Set and Restore before Run are inactive: they start now. A stored
	// value may be out of date as well.
	for uid, e := range m.entries {
		m.begin(uid, e)
	}
	m.mu.Unlock()
	stopStore := m.runStore()
	if err != nil && ctx.Err() == nil {
		m.cfg.Log.Error("failed to restore statuses", zap.Error(err))
		m.restoreLate(ctx)
	}
	<-ctx.Done()
	m.mu.Lock()
	// No timer may start a write after the last one was waited for.
	for _, e := range m.entries {
		if e.retry != nil {
			e.retry.Stop()
		}
	}
	m.mu.Unlock()
	// The order: no further news, then the writes, then subscribers have seen
	// everything, and last the store, which then knows which statuses the sink has
	// not taken.
	m.subs.Close()
	m.wg.Wait()
	m.subs.Wait()
	stopStore()
	return nil
}

// Get returns a copy of a pod's status.
func (m *Manager) Get(uid types.UID) (v1.PodStatus, bool) {
	m.mu.Lock()
	e := m.entries[uid]
	var st *v1.PodStatus
	if e != nil {
		st = e.status
	}
	// The copy is made without the lock: the status itself is never changed.
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

// Set calls Show for a pod that is published under its own object and of which no container runs
// when its phase is terminal.
func (m *Manager) Set(pod *v1.Pod, status v1.PodStatus) (changed bool) {
	last, _ := m.Last(pod.UID)
	return m.Show(pod, Report{Status: status, Life: last.Life, Shown: Itself(pod), Runs: observed.No})
}

// Show stores a newly computed status of a pod, and reports whether it differs from the previous
// one. The Manager keeps pod and status: neither they nor the values that they refer to may
// be changed after the call. Conditions of other writers are kept as given, and are not
// compared.
func (m *Manager) Show(pod *v1.Pod, r Report) (changed bool) {
	// The status was computed from this pod: KEP-5067.
	r.Status.ObservedGeneration = max(r.Status.ObservedGeneration, pod.Generation)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.accept(pod, r, false)
}

// Last returns the last Report of a pod. Objects in the Report are shared and must not be changed.
func (m *Manager) Last(uid types.UID) (Report, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries[uid]; e != nil {
		return e.report(), true
	}
	return Report{}, false
}

// report returns the last Report that was accepted for the entry.
func (e *entry) report() Report {
	return Report{Status: *e.status, Life: e.life, Shown: e.shown, Runs: e.runs, Why: e.why}
}

// Terminate sets the last status of a pod of which nothing is left on the node. Started
// containers that have not terminated get exit code 137. The phase becomes terminal, except
// for static pods.
func (m *Manager) Terminate(pod *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := Report{Status: pod.Status, Shown: Itself(pod)}
	if e := m.entries[pod.UID]; e != nil {
		r = e.report()
	}
	r.Status, r.Runs = *terminatedStatus(pod, r.Status.DeepCopy()), observed.No
	m.accept(pod, r, true)
}

// SetReady changes the readiness of a container, and with it the readiness of its pod.
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

// SetStarted changes whether a container counts as started (ContainerStatus.Started).
func (m *Manager) SetStarted(uid types.UID, containerID string, started bool) {
	m.change(uid, containerID, func(c *v1.ContainerStatus, _ *v1.PodStatus, _ *v1.Pod) bool {
		if c.Started != nil && *c.Started == started {
			return false
		}
		c.Started = &started
		return true
	})
}

// change changes one container's status, if it is known. Statuses from before a restart are not
// changed: readiness of the pod depends on its spec, which is not known yet.
func (m *Manager) change(uid types.UID, containerID string, fn func(*v1.ContainerStatus, *v1.PodStatus, *v1.Pod) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[uid]
	if e == nil || e.restored {
		return
	}
	// A copy: subscribers and writes under way have the old one.
	r := e.report()
	r.Status = *r.Status.DeepCopy()
	for _, list := range [][]v1.ContainerStatus{r.Status.ContainerStatuses, r.Status.InitContainerStatuses} {
		for i := range list {
			if sameContainer(list[i].ContainerID, containerID) && fn(&list[i], &r.Status, e.pod) {
				m.accept(e.pod, r, false)
				return
			}
		}
	}
}

// Retain drops every pod for which keep returns false, except pods that the sink still has to
// delete: a later call drops them when the sink has deleted them. keep must not call the Manager.
func (m *Manager) Retain(keep func(types.UID) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid, e := range m.entries {
		if !keep(uid) && (e.stage == inactive || !e.deletable()) {
			m.drop(uid, e)
		}
	}
}

// Forget drops a pod's status, for example when the pod's next life (podlife.Life) begins. The next
// Set of the pod counts as its first and is not compared with the dropped one.
func (m *Manager) Forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries[uid]; e != nil {
		m.drop(uid, e)
	}
}

// drop forgets a pod. The caller holds m.mu. A call of the sink in flight goes on and its result is
// ignored. A write that still waits for the disk makes no call of the sink. A stored value is
// removed.
func (m *Manager) drop(uid types.UID, e *entry) {
	m.advance(e, input{event: onRemove})
	delete(m.entries, uid)
	m.subs.Publish(Change{UID: uid, Removed: true})
}

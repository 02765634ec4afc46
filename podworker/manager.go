package podworker

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podworker/serial"
)

// Manager runs the workers of all pods. Its methods may be called from any
// goroutine and never wait for a syncer.
//
// What is to be done about a pod is decided by core; the Manager does it. The
// workers, with their goroutines, timers and contexts, are those of serial.
type Manager struct {
	cfg     Config
	met     *metrics
	workers *serial.Manager[types.UID, *pod]
	jitter  func(time.Duration) time.Duration

	// Guarded by the lock of workers.
	core    *core
	synced  bool            // SyncKnownPods was called
	stopped bool            // Run's context has ended
	ctx     context.Context // Run's
}

// firstSyncLimit is how long a first sync keeps its place. What takes longer
// waits for a registry or a hung runtime, and not for this machine.
const firstSyncLimit = 10 * time.Second

// New checks cfg and returns a Manager at rest. Updates may come before Run;
// they are worked off once it is called.
func New(cfg Config) (*Manager, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("podworker: %w", err)
	}
	met, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("podworker: %w", err)
	}
	m := &Manager{cfg: cfg, met: met, jitter: jitter, core: newCore(cfg.Idle)}
	m.workers, err = serial.New(serial.Config[types.UID, *pod]{
		Handle: m.handle, Called: m.called, Begin: m.begin, End: m.end,
		Limit: cfg.FirstSyncs,
		// Only first syncs start containers in numbers; ends of pods never wait for a
		// place.
		Limited: func(c *serial.Call[types.UID, *pod]) bool {
			return c.Calls == 0 && c.Update.stage == live
		},
		Patience: firstSyncLimit,
	})
	if err != nil {
		return nil, fmt.Errorf("podworker: %w", err)
	}
	return m, nil
}

// Run works until ctx ends, cancels the calls in flight, and returns nil when
// all have returned. No pod is killed by it. It may be called once.
func (m *Manager) Run(ctx context.Context) error {
	// Pods that were held are let go in one go with the opening: no update comes
	// in between.
	m.workers.Lock()
	m.ctx, m.core.open = ctx, true
	m.feedAll(opened)
	m.workers.Unlock()

	// If ctx has ended, stop has begun in its own goroutine: Run returns only
	// after it, so that every channel is closed by then.
	closed := make(chan struct{})
	unwatch := context.AfterFunc(ctx, func() {
		defer close(closed)
		m.stop()
	})
	err := m.workers.Run(ctx)
	if !unwatch() {
		<-closed
	}
	return err
}

// stop closes every completion channel: nobody will be told any more. Updates
// that come later have theirs closed by Update.
func (m *Manager) stop() {
	m.workers.Lock()
	defer m.workers.Unlock()
	m.stopped = true
	m.feedAll(shut)
}

// feedAll informs every pod of an event. It is called with the workers locked.
func (m *Manager) feedAll(e event) {
	now := time.Now()
	for _, p := range m.core.pods {
		m.core.feed(p, m.core.input(e, now))
		m.apply()
	}
}

// Update informs the pod's worker of news. It returns at once; the pod's syncer
// runs later, with this update or a newer one.
func (m *Manager) Update(u Update) {
	uid, ok := identify(&u)
	if !ok {
		m.cfg.Log.Error("update dropped: it names no pod, or it is no kill of a pod that only the runtime knows",
			zap.Stringer("type", u.Type))
		closeDone(u.Kill)
		return
	}
	m.workers.Lock()
	defer m.workers.Unlock()
	if m.stopped {
		closeDone(u.Kill)
		return
	}
	// Most updates of a busy pod end here: nothing to decide, no look at the
	// clock.
	if p := m.core.pods[uid]; p == nil || !p.join(&u) {
		m.core.update(uid, p, &u, time.Now())
		m.apply()
	}
}

// identify checks that an update makes sense, and whom it concerns.
func identify(u *Update) (uid types.UID, ok bool) {
	if u.Pod != nil {
		u.RuntimePod = nil
		return u.Pod.UID, true
	}
	if u.RuntimePod == nil || u.Type != KillUpdate {
		return "", false
	}
	return u.RuntimePod.UID, true
}

// closeDone closes the channel of an update that no pod takes.
func closeDone(k *KillOptions) {
	if k != nil && k.Done != nil {
		close(k.Done)
	}
}

// Resync has the pod looked at again with what is known of it, and reports
// whether there is such a pod. A pod that waits after an error is tried again
// at once.
func (m *Manager) Resync(uid types.UID) bool {
	m.workers.Lock()
	defer m.workers.Unlock()
	p, ok := m.core.pods[uid]
	if ok {
		m.core.feed(p, m.core.input(resynced, time.Now()))
		m.apply()
	}
	return ok
}

// SyncKnownPods compares the workers with the pods that are wanted. Those not
// wanted are terminated, records that have come to their end are dropped, and
// what remains is returned. From the first call on, a UID without a record is
// known to have nothing left. It does not wait for the pods that it ends.
func (m *Manager) SyncKnownPods(desired []*v1.Pod) map[types.UID]PodSync {
	want := make(map[types.UID]bool, len(desired))
	for _, p := range desired {
		want[p.UID] = true
	}
	m.workers.Lock()
	defer m.workers.Unlock()
	m.synced = true
	known := make(map[types.UID]PodSync, len(m.core.pods))
	now := time.Now()
	for uid, p := range m.core.pods {
		orphan := !want[uid]
		if orphan {
			m.core.feed(p, m.core.input(unwanted, now))
			m.apply()
		}
		// The step may have dropped the pod, or begun another life of its UID.
		if m.core.pods[uid] == p {
			known[uid] = p.podSync(orphan)
		}
	}
	return known
}

package probe

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/probe/check"
)

// Manager runs the probes of all pods. Its methods may be called from any
// goroutine, before, during and after Run, and do not wait for checks.
type Manager struct {
	// The first fields do not change after New; they have their own locks.
	cfg     Config
	met     *metrics
	engine  *check.Engine
	journal *journal
	client  *check.Client
	runtime *runtime

	// mu guards pods, byID and their contents. It is locked before the locks of the
	// engine and of the journal, never after them, and is not held during a check
	// or a callback.
	mu   sync.Mutex
	pods map[types.UID]*pod
	// byID has the current containers by instance ID.
	byID map[string]*container
	wg   sync.WaitGroup // counts goroutines of publish
}

// New checks cfg and returns a Manager, which Run starts.
func New(cfg Config) (*Manager, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	m := &Manager{cfg: cfg, pods: map[types.UID]*pod{}, byID: map[string]*container{}}
	var err error
	if m.met, err = newMetrics(cfg.Metrics); err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	m.engine, err = check.NewEngine(check.EngineConfig{
		Parallel: cfg.Parallel, ParallelExpensive: cfg.ParallelExec,
		Late: func(d time.Duration) { m.met.late.Observe(d.Seconds()) },
	})
	if err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	m.journal = newJournal(cfg.Journal, cfg.Log)
	m.client = check.NewClient(check.ClientConfig{KeepAlive: cfg.KeepAlive, Graceful: cfg.Graceful})
	m.runtime = &runtime{exec: cfg.Exec, answers: cfg.Answers}
	return m, nil
}

// Run makes checks until ctx ends, and returns nil when all have ended, all results
// are reported and the journal is written. It may be called once.
func (m *Manager) Run(ctx context.Context) error {
	// Before the first check, so that all see it. A check's own context cannot be
	// used: it has ended when the runtime is called again.
	m.runtime.life = ctx
	if err := m.engine.Run(ctx); err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	// In the order of the flow: checks end, then their results are reported, and
	// then the journal writes the last of them.
	m.wg.Wait()
	m.journal.close()
	m.client.Close()
	return nil
}

// Observe updates a pod from the runtime's state obs, which is nil if the state is not known yet.
// It creates, replaces and ends the pod's probes accordingly. Calls for one pod must be in the
// order of the observations. The first call for a new life of the pod (podlife.Life) drops the
// results of the earlier life. After that, calls for the earlier life are ignored. Pod and state
// are shared afterwards: do not change them.
func (m *Manager) Observe(life podlife.Life, p *v1.Pod, obs *observed.Pod) {
	var restored record
	// The disk is read before the lock is taken: a slow one delays this pod
	// alone.
	if !m.knows(p.UID) {
		restored = m.journal.read(p.UID)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	ps := m.pods[p.UID]
	if ps != nil && ps.life < life.N {
		m.remove(ps)
		ps = nil
	}
	if ps != nil && ps.life > life.N {
		return
	}
	if ps == nil {
		ps = &pod{uid: p.UID, life: life.N, containers: map[string]*container{}, restored: restored}
		m.pods[p.UID] = ps
	}
	// A pointer is enough to compare, as pods are not changed once they are
	// handed over.
	edited := ps.pod != p
	ps.pod = p
	// Permanently, even if an older version of the pod follows
	// EndLivenessAndStartup.
	ps.ending = ps.ending || p.DeletionTimestamp != nil
	ps.over = podmeta.IsTerminal(p.Status.Phase)
	if edited {
		m.specs(ps)
	}
	// An empty observation without a time is ignored: as the first one, it would
	// make running containers count as new.
	if obs != nil && (!obs.ObservedAt.IsZero() || len(obs.Sandboxes)+len(obs.Containers) > 0) {
		m.look(ps, obs.Settled())
	}
	// Only now are probes started: by the new spec, the new instances and their
	// states together.
	for _, c := range ps.containers {
		m.arrange(c)
	}
}

// knows reports whether a pod was observed and not removed since.
func (m *Manager) knows(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pods[uid] != nil
}

// EndLivenessAndStartup ends the liveness and startup probes of a life that is being terminated,
// including the probes of its sidecars. From now on their result is Success, which is not reported.
// Readiness probes continue.
func (m *Manager) EndLivenessAndStartup(life podlife.Life) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ps := m.pods[life.UID]
	if ps == nil || ps.life > life.N {
		return
	}
	ps.ending = true
	for _, c := range ps.containers {
		m.arrange(c)
	}
}

// Remove ends all probes of a pod and deletes their results, also in the journal. A call for an
// unknown pod, or for an earlier life than the pod's current one, is ignored.
func (m *Manager) Remove(life podlife.Life) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ps := m.pods[life.UID]; ps != nil && ps.life <= life.N {
		m.remove(ps)
	}
}

// Retain removes all pods for which keep returns false, also those that are only in the journal of
// an earlier process. keep must not call the Manager.
func (m *Manager) Retain(keep func(types.UID) bool) {
	m.mu.Lock()
	for uid, ps := range m.pods {
		// keep is called with mu held, which is why it must not call back.
		if !keep(uid) {
			m.remove(ps)
		}
	}
	m.mu.Unlock()
	// Without mu: it reads all keys from a disk.
	m.journal.sweep(keep)
}

// remove ends a pod's probes and its record in the journal. The caller holds
// m.mu.
func (m *Manager) remove(ps *pod) {
	delete(m.pods, ps.uid)
	for _, c := range ps.containers {
		m.drop(c)
	}
	m.journal.forget(ps.uid)
}

// Result returns the result of a container's probe. known is false without such a
// probe or container. A known result that is Unknown means that the container ran
// before this Manager and has not been checked yet: keep its published state.
func (m *Manager) Result(t Type, containerID string) (r Result, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.byID[containerID]
	// t is untrusted, and indexes an array.
	if c == nil || t < 0 || t >= types3 || c.probes[t] == nil {
		return Unknown, false
	}
	return c.probes[t].result, true
}

// Unsure reports whether a container ran before this Manager, and its startup or readiness has not
// been checked yet. The caller should then keep the published values of Started and Ready, or guess
// them if they are not known.
func (m *Manager) Unsure(containerID string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.byID[containerID]
	if c == nil || !c.running || !c.ranBefore && !c.journaled {
		return false
	}
	for _, t := range [...]Type{Startup, Readiness} {
		if p := c.probes[t]; p != nil && p.result == Unknown {
			return true
		}
	}
	return false
}

// Ready reports whether a running container is ready: its readiness probe has
// succeeded, or it has none. Unknown counts as no; see [Manager.Result].
func (m *Manager) Ready(containerID string) bool { return m.passes(Readiness, containerID) }

// Started reports whether a running container has started: its startup probe has
// succeeded, or it has none.
func (m *Manager) Started(containerID string) bool { return m.passes(Startup, containerID) }

// passes reports whether a container is known and has no probe of that type, or one
// with result Success.
func (m *Manager) passes(t Type, id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.byID[id]
	return c != nil && (c.probes[t] == nil || c.probes[t].result == Success)
}

// Checks returns how many checks have a slot, how many slots there are (Config.Parallel), and how
// many checks wait for one. If exec is true, the three numbers are for the slots of exec checks
// (Config.ParallelExec).
func (m *Manager) Checks(exec bool) (running, limit, waiting int) { return m.engine.Load(exec) }

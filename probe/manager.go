package probe

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/probe/check"
)

// Manager keeps the probes of all pods. Its methods may be called from any
// goroutine, before, during and after Run, and never wait for a check.
type Manager struct {
	// The first fields do not change after New; each has locks of its own where
	// it needs them.
	cfg     Config
	met     *metrics
	engine  *check.Engine
	journal *journal
	client  *check.Client
	runtime *runtime

	// mu guards pods, byID and all that they hold. It is taken before the locks
	// of the engine and of the journal, never after them, and is not held over a
	// check or a callback.
	mu   sync.Mutex
	pods map[types.UID]*pod
	// byID has the containers that stand for an instance, by its ID.
	byID map[string]*container
	wg   sync.WaitGroup // of publish
}

// New checks cfg and returns a Manager at rest.
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
	m.journal = newJournal(cfg.Journal, cfg.Log, m.met)
	m.client = check.NewClient(check.ClientConfig{KeepAlive: cfg.KeepAlive, Graceful: cfg.Graceful})
	m.runtime = &runtime{exec: cfg.Exec, answers: cfg.Answers}
	return m, nil
}

// Run makes checks until ctx ends, and returns nil when none is under way, all
// results are told and the journal is written. It may be called once.
func (m *Manager) Run(ctx context.Context) error {
	// Before the first check, so that none sees it unset. A check's own context
	// does not do: it is over when the runtime is asked whether it answers.
	m.runtime.life = ctx
	if err := m.engine.Run(ctx); err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	// In the order of the flow: checks have ended, then their results are told,
	// and then the journal writes the last of them.
	m.wg.Wait()
	m.journal.close()
	m.client.Close()
	return nil
}

// Observe notes what the runtime shows of a pod; nil means that nobody knows
// yet. It makes, replaces and ends the pod's probes accordingly. For one pod, calls
// have to come in the order of the observations. Both arguments are shared from
// then on: they must not be changed.
func (m *Manager) Observe(p *v1.Pod, obs *observed.Pod) {
	var restored record
	// The disk is read before the lock is taken: a slow one delays this pod
	// alone.
	if !m.knows(p.UID) {
		restored = m.journal.read(p.UID)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	ps := m.pods[p.UID]
	if ps == nil {
		ps = &pod{uid: p.UID, containers: map[string]*container{}, restored: restored}
		m.pods[p.UID] = ps
	}
	// A pointer is enough to compare, as pods are not changed once they are
	// handed over.
	edited := ps.pod != p
	ps.pod = p
	// For good, also if an older version of the pod is seen after
	// EndLivenessAndStartup.
	ps.ending = ps.ending || p.DeletionTimestamp != nil
	ps.over = podmeta.IsTerminal(p.Status.Phase)
	if edited {
		m.specs(ps)
	}
	// An empty observation without a time is nobody's: as the first look, it
	// would have containers that run already count as new.
	if obs != nil && (!obs.ObservedAt.IsZero() || len(obs.Sandboxes)+len(obs.Containers) > 0) {
		m.look(ps, obs.Settled())
	}
	// Only now are probes started: by the new spec, the new instances and their
	// states together.
	for _, c := range ps.containers {
		m.arrange(c)
	}
}

// knows reports whether a pod was observed before, and not removed since.
func (m *Manager) knows(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pods[uid] != nil
}

// EndLivenessAndStartup ends these probes of a pod that is being terminated,
// those of its sidecars too. From now on their result is Success, of which
// nobody is told. Readiness goes on.
func (m *Manager) EndLivenessAndStartup(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ps := m.pods[uid]
	if ps == nil {
		return
	}
	ps.ending = true
	for _, c := range ps.containers {
		m.arrange(c)
	}
}

// Remove ends all probes of a pod and forgets their results, in the journal
// too. Pods that are not known are no matter.
func (m *Manager) Remove(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remove(uid)
}

// Retain removes all pods that are not to be kept, also those that only the
// journal of an earlier process knows. keep must not call the Manager.
func (m *Manager) Retain(keep func(types.UID) bool) {
	m.mu.Lock()
	for uid := range m.pods {
		// keep is called with mu held, which is why it must not call back.
		if !keep(uid) {
			m.remove(uid)
		}
	}
	m.mu.Unlock()
	// Without mu: it asks a disk for all keys.
	m.journal.sweep(keep)
}

// remove ends a pod's probes and its record in the journal. The caller holds
// m.mu.
func (m *Manager) remove(uid types.UID) {
	ps := m.pods[uid]
	if ps == nil {
		return
	}
	delete(m.pods, uid)
	for _, c := range ps.containers {
		m.drop(c)
	}
	m.journal.forget(uid)
}

// Result is what a probe of a container has found out. known is false where
// there is no such probe, or no such container. A known result that is Unknown
// says that the container ran before this Manager and that nothing was found
// out yet: what was shown of it before should stay.
func (m *Manager) Result(t Type, containerID string) (r Result, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.byID[containerID]
	// t comes from outside, and indexes an array.
	if c == nil || t < 0 || t >= types3 || c.probes[t] == nil {
		return Unknown, false
	}
	return c.probes[t].result, true
}

// Unsure reports whether a container ran before this Manager, and nothing was found out yet
// about its startup or its readiness: a status has it as it was before, or as a guess where
// nobody knows that.
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

// Ready reports whether a running container counts as ready: its readiness
// probe says so, or it has none. Unknown is no; see [Manager.Result] to tell
// it apart.
func (m *Manager) Ready(containerID string) bool { return m.passes(Readiness, containerID) }

// Started reports whether a running container counts as started: its startup
// probe says so, or it has none.
func (m *Manager) Started(containerID string) bool { return m.passes(Startup, containerID) }

// passes reports whether a container is known and has no probe of that type, or
// one whose result is Success.
func (m *Manager) passes(t Type, id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.byID[id]
	return c != nil && (c.probes[t] == nil || c.probes[t].result == Success)
}

// Trigger has a probe's next check made now, unless it rests or waits for
// another probe or for its initial delay.
func (m *Manager) Trigger(t Type, containerID string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.byID[containerID]; c != nil && t >= 0 && t < types3 && c.probes[t] != nil && c.probes[t].running != nil {
		c.probes[t].running.Trigger()
	}
}

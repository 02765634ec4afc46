package podworker

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podworker/serial"
)

// Status describes one worker and its pod.
type Status struct {
	UID             types.UID
	Namespace, Name string
	// Pod is the newest known spec, or nil for a pod that only the runtime
	// knows. It is shared: do not change it.
	Pod      *v1.Pod
	Kind     Kind
	Static   bool
	Finished bool
	// Doing describes the syncer's call in flight; it is "" if there is none. Since is when this
	// call began. Without a call, Since is when the last call ended or, before the first call,
	// when the worker was created.
	Doing string
	Since time.Time
	// WaitingFor describes what the worker waits for before its next call.
	WaitingFor string
	// NextAt is when the worker's timer makes the next call, and NextReason is the reason of that
	// call. They are zero and "" if no timer is set.
	NextAt     time.Time
	NextReason string
	// LastError is the error of the last call, or "" if it succeeded. Failures counts the failed
	// calls in a row.
	LastError string
	Failures  int
	// TerminatingAt is when the termination was requested, or the pod ended by itself.
	TerminatingAt time.Time
	// EndsBy is when the grace period ends; zero until termination is requested.
	EndsBy time.Time
}

// State returns the Status of a pod's worker, and whether the pod has one.
func (m *Manager) State(uid types.UID) (Status, bool) {
	m.workers.Lock()
	defer m.workers.Unlock()
	p, ok := m.core.pods[uid]
	if !ok {
		return Status{}, false
	}
	return m.status(p), true
}

// List returns the Status of every worker, ordered by namespace, name and UID.
func (m *Manager) List() []Status {
	m.workers.Lock()
	all := make([]Status, 0, len(m.core.pods))
	for _, p := range m.core.pods {
		all = append(all, m.status(p))
	}
	m.workers.Unlock()
	slices.SortFunc(all, func(a, b Status) int {
		if c := strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name); c != 0 {
			return c
		}
		return strings.Compare(string(a.UID), string(b.UID))
	})
	return all
}

// status returns the Status of a pod, from the state in core and the state of the pod's worker.
func (m *Manager) status(p *pod) Status {
	w, _ := m.workers.Locked().State(p.uid) // zero while the pod is held
	s := Status{
		UID: p.uid, Namespace: p.namespace, Name: p.name, Pod: p.newest(), Kind: p.stage.kind(), Static: p.claim != unclaimed,
		Finished: p.stage == finished, Doing: p.doing(), Since: p.since, WaitingFor: p.waitFor,
		NextAt: w.NextAt, NextReason: w.Reason, Failures: w.Failures, TerminatingAt: p.end.at, EndsBy: p.end.by,
	}
	if m.core.open && w.Activity == serial.Queued {
		s.WaitingFor = "a place among the pods that start at the same time"
	}
	if w.Err != nil {
		s.LastError = w.Err.Error()
	}
	return s
}

// doing describes the syncer's call in flight for a person, or returns "" if there is none.
func (s *state) doing() string {
	switch {
	case s.activity != calling:
		return ""
	case s.turn.kind == Terminating:
		return "stopping its containers"
	case s.turn.kind == Terminated:
		return "cleaning up after it"
	default:
		return "starting or checking its containers"
	}
}

// ask calls the function known for the pod, or the function unknown if the pod has no worker. The
// functions are called with the workers locked.
func (m *Manager) ask(uid types.UID, known func(*pod) bool, unknown func() bool) bool {
	m.workers.Lock()
	defer m.workers.Unlock()
	if p, ok := m.core.pods[uid]; ok {
		return known(p)
	}
	return unknown()
}

// never is passed to ask as unknown by queries that are false for a pod without a worker.
func never() bool { return false }

// afterSync is passed to ask as unknown by queries that are true for a pod without a worker once
// SyncKnownPods was called: such a pod is completely cleaned up.
func (m *Manager) afterSync() bool { return m.synced }

// KnownTerminated reports whether the pod's containers are proven to have stopped. It is false for
// a pod without a worker: its containers may still run from before a restart of the agent.
func (m *Manager) KnownTerminated(uid types.UID) bool {
	return m.ask(uid, func(p *pod) bool { return p.stage.kind() == Terminated }, never)
}

// CouldHaveRunningContainers reports whether containers of the pod may run, or may
// be started. For a pod without a worker it is true until the first SyncKnownPods.
func (m *Manager) CouldHaveRunningContainers(uid types.UID) bool {
	return m.ask(uid, func(p *pod) bool { return p.stage.kind() != Terminated }, func() bool { return !m.synced })
}

// TerminationRequested reports whether the pod's termination was requested, or the pod has
// ended by itself. It is false for a pod without a worker.
func (m *Manager) TerminationRequested(uid types.UID) bool {
	return m.ask(uid, func(p *pod) bool { return p.stage > live }, never)
}

// ShouldContentBeRemoved reports whether the pod's directories, logs and dead containers may
// be removed: the pod is evicted, or it is deleted and its containers have stopped. A pod that
// ended by itself keeps them until it is deleted, so that its logs can be read. For a pod
// without a worker it is true from the first SyncKnownPods on.
func (m *Manager) ShouldContentBeRemoved(uid types.UID) bool {
	return m.ask(uid, func(p *pod) bool {
		return p.why.evicted || (p.why.deleted && p.stage.kind() == Terminated)
	}, m.afterSync)
}

// TerminatingByFullName reports whether the static pod that has this full name
// (name_namespace) is terminating: its containers are not proven to have stopped yet.
func (m *Manager) TerminatingByFullName(fullName string) bool {
	m.workers.Lock()
	defer m.workers.Unlock()
	p := m.core.pods[m.core.names.holder(fullName)]
	return p != nil && p.stage.kind() == Terminating
}

// Starts returns how many pods are in their first sync, how many may be at a time
// (Config.FirstSyncs), and how many wait for their first sync.
func (m *Manager) Starts() (running, limit, waiting int) { return m.workers.Load() }

// Ends returns how many pods are being terminated. Their number has no limit: a termination mostly
// waits for the pod's own processes, and other pods may need its resources.
func (m *Manager) Ends() (running int) {
	m.workers.Lock()
	defer m.workers.Unlock()
	for _, p := range m.core.pods {
		if p.stage.kind() == Terminating {
			running++
		}
	}
	return running
}

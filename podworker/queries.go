package podworker

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Status is what one worker is doing.
type Status struct {
	UID             types.UID
	Namespace, Name string
	// Pod is the newest known spec, or nil for a pod that only the runtime
	// knows. It is shared: do not change it.
	Pod      *v1.Pod
	Kind     Kind
	Static   bool
	Finished bool
	// Doing says what the syncer was called for, "" while it is not called;
	// Since is when that began or ended.
	Doing string
	Since time.Time
	// WaitingFor says what has to happen before the worker may go on.
	WaitingFor string
	// NextAt is when the worker acts by itself, and NextReason why; zero and
	// "" if it only waits to be told.
	NextAt     time.Time
	NextReason string
	// LastError is the last call's, "" if it succeeded; Failures counts
	// those in a row.
	LastError string
	Failures  int
	// TerminatingAt is when the pod's end was asked for, or came.
	TerminatingAt time.Time
}

// State tells what the worker of a pod is doing.
func (m *Manager) State(uid types.UID) (Status, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.records[uid]
	if !ok {
		return Status{}, false
	}
	return r.status(), true
}

// List tells what every worker is doing, ordered by namespace, name and UID.
func (m *Manager) List() []Status {
	m.mu.Lock()
	all := make([]Status, 0, len(m.records))
	for _, r := range m.records {
		all = append(all, r.status())
	}
	m.mu.Unlock()
	slices.SortFunc(all, func(a, b Status) int {
		if c := strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name); c != 0 {
			return c
		}
		return strings.Compare(string(a.UID), string(b.UID))
	})
	return all
}

func (r *record) status() Status {
	s := Status{
		UID: r.uid, Namespace: r.namespace, Name: r.name, Pod: r.pod(), Kind: r.kind(), Static: r.static,
		Finished: r.finished, Doing: r.doing, Since: r.since, WaitingFor: r.waitFor,
		NextAt: r.nextAt, NextReason: r.nextReason, Failures: r.failures, TerminatingAt: r.terminatingAt,
	}
	if r.lastErr != nil {
		s.LastError = r.lastErr.Error()
	}
	return s
}

// ask answers a question about a record, and unknown without one.
func (m *Manager) ask(uid types.UID, known func(*record) bool, unknown func() bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, ok := m.records[uid]; ok {
		return known(r)
	}
	return unknown()
}

func never() bool { return false }

// afterSync is the answer for an unknown pod: it has nothing left, once the
// wanted pods have been told.
func (m *Manager) afterSync() bool { return m.synced }

// KnownTerminated tells that the pod's containers are proven stopped.
func (m *Manager) KnownTerminated(uid types.UID) bool {
	return m.ask(uid, func(r *record) bool { return r.kind() == Terminated }, never)
}

// CouldHaveRunningContainers tells that containers of the pod may run, or may
// be started.
func (m *Manager) CouldHaveRunningContainers(uid types.UID) bool {
	return m.ask(uid, func(r *record) bool { return r.kind() != Terminated }, func() bool { return !m.synced })
}

// ShouldBeFinished tells that nothing is left to do for the pod.
func (m *Manager) ShouldBeFinished(uid types.UID) bool {
	return m.ask(uid, func(r *record) bool { return r.finished }, m.afterSync)
}

// TerminationRequested tells that the pod is to end, or has ended.
func (m *Manager) TerminationRequested(uid types.UID) bool {
	return m.ask(uid, func(r *record) bool { return !r.terminatingAt.IsZero() }, never)
}

// ShouldContainersBeTerminating tells that no container of the pod may be
// started any more.
func (m *Manager) ShouldContainersBeTerminating(uid types.UID) bool {
	return m.ask(uid, func(r *record) bool { return r.startedTerminating }, m.afterSync)
}

// ShouldRuntimeBeRemoved tells that the pod's sandboxes may be removed.
func (m *Manager) ShouldRuntimeBeRemoved(uid types.UID) bool {
	return m.ask(uid, func(r *record) bool { return r.kind() == Terminated }, m.afterSync)
}

// ShouldContentBeRemoved tells that all the pod keeps on the node may go.
func (m *Manager) ShouldContentBeRemoved(uid types.UID) bool {
	return m.ask(uid, func(r *record) bool {
		return r.evicted || (r.deleted && r.kind() == Terminated)
	}, m.afterSync)
}

// TerminatingByFullName tells that the static pod that has this full name
// (name_namespace) is to end and has not ended yet.
func (m *Manager) TerminatingByFullName(fullName string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.names[fullName]
	if c == nil || c.holder == "" {
		return false
	}
	r := m.records[c.holder]
	return r != nil && r.kind() == Terminating
}

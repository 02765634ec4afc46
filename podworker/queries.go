package podworker

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podworker/serial"
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
	// EndsBy is when its containers should have ended; zero until its end is asked for.
	EndsBy time.Time
}

// State returns what the worker of a pod is doing, and whether there is one.
func (m *Manager) State(uid types.UID) (Status, bool) {
	m.workers.Lock()
	defer m.workers.Unlock()
	p, ok := m.core.pods[uid]
	if !ok {
		return Status{}, false
	}
	return m.status(p), true
}

// List returns what every worker is doing, ordered by namespace, name and UID.
// The order is made without the lock, which workers need.
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

// status puts together what the core decided and what the worker does about
// it.
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

// doing returns what the syncer is being called for, in words for people; "" while
// it is not being called.
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

// ask answers a question about a pod, and unknown if there is none. It blocks
// for no longer than another call of the Manager. The functions are called with
// the workers locked.
func (m *Manager) ask(uid types.UID, known func(*pod) bool, unknown func() bool) bool {
	m.workers.Lock()
	defer m.workers.Unlock()
	if p, ok := m.core.pods[uid]; ok {
		return known(p)
	}
	return unknown()
}

// never is the answer for an unknown pod of which nothing may be concluded.
func never() bool { return false }

// afterSync is the answer for an unknown pod: it has nothing left, once the
// wanted pods have been told.
func (m *Manager) afterSync() bool { return m.synced }

// KnownTerminated reports whether the pod's containers are proven stopped. An
// unknown pod is not known to be: its containers may run from before a restart.
func (m *Manager) KnownTerminated(uid types.UID) bool {
	return m.ask(uid, func(p *pod) bool { return p.stage.kind() == Terminated }, never)
}

// CouldHaveRunningContainers reports whether containers of the pod may run, or may
// be started. An unknown pod may have them until SyncKnownPods was called.
func (m *Manager) CouldHaveRunningContainers(uid types.UID) bool {
	return m.ask(uid, func(p *pod) bool { return p.stage.kind() != Terminated }, func() bool { return !m.synced })
}

// TerminationRequested reports whether the pod is to end, or has ended.
func (m *Manager) TerminationRequested(uid types.UID) bool {
	return m.ask(uid, func(p *pod) bool { return p.stage > live }, never)
}

// ShouldContentBeRemoved reports whether all the pod keeps on the node may go.
// A pod that ended by itself keeps its content until it is deleted: its logs
// are still to be read.
func (m *Manager) ShouldContentBeRemoved(uid types.UID) bool {
	return m.ask(uid, func(p *pod) bool {
		return p.why.evicted || (p.why.deleted && p.stage.kind() == Terminated)
	}, m.afterSync)
}

// TerminatingByFullName reports whether the static pod that has this full name
// (name_namespace) is to end and has not ended yet.
func (m *Manager) TerminatingByFullName(fullName string) bool {
	m.workers.Lock()
	defer m.workers.Unlock()
	p := m.core.pods[m.core.names.holder(fullName)]
	return p != nil && p.stage.kind() == Terminating
}

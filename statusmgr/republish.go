package statusmgr

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Republish has to be called for a pod when the result of Config.PublishAs, Config.Known,
// Config.CouldHaveRunning or Config.Reclaimed changes. It publishes the status under a new object,
// or the status or deletion that had to wait. If there is none, it does nothing.
func (m *Manager) Republish(uid types.UID) {
	m.mu.Lock()
	e := m.entries[uid]
	var pod *v1.Pod
	if e != nil {
		pod = e.pod
	}
	m.mu.Unlock()
	if pod == nil {
		return
	}
	// Without the lock: PublishAs may ask a manager of pods that calls this one.
	as, ok := m.cfg.PublishAs(pod)
	m.mu.Lock()
	defer m.mu.Unlock()
	// Dropped, or replaced, meanwhile: the new entry is published by itself.
	if m.entries[uid] != e {
		return
	}
	m.advance(e, input{event: onRepublish, replaced: ok && as.UID != e.sentTo && !e.restored})
}

// Reconcile compares the status of the API's object with the published one. If another writer
// changed it, Reconcile publishes the status again and returns true. Fractions of seconds and
// the fields of other writers are not compared. The Manager keeps pod, which must not be changed.
func (m *Manager) Reconcile(pod *v1.Pod) (again bool) {
	as, ok := m.cfg.PublishAs(pod)
	if !ok || as.Status.Phase == "" {
		return false // there is no API, or it has no status yet
	}
	current := as.Status.DeepCopy()
	normalize(pod, current)
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[pod.UID]
	// Before the first Set there is no status to insist on.
	if e == nil || e.restored {
		return false
	}
	// The newest object counts for the publication even if the status is the same:
	// it may be marked for deletion.
	e.pod = pod
	if e.sent == nil || !e.comparable() || sameStatus(e.sent, current) {
		m.refresh(e)
		return false
	}
	final, deletion := e.facts()
	m.advance(e, input{event: onDrift, final: final, deletion: deletion})
	return true
}

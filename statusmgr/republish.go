package statusmgr

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Republish notes that something other than a pod's status has changed that
// its publication depends on: Config.PublishAs gives an object now, or another
// one, or that is known, or the answer of Config.CouldHaveRunning or Config.Reclaimed is
// different. It publishes what this makes due; for a pod that has nothing due
// it does nothing.
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

// Reconcile compares the status of the API's object with the one that was
// published, and publishes it again if somebody changed it. It reports whether
// that is so. Fractions of seconds and the fields of other writers do not
// count. The pod is kept and must not be changed.
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

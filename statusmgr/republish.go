package statusmgr

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Republish has to be called when Shown has changed since the pod's last Report. It publishes the
// status under the new object, or publishes a status that had to wait until Shown was Confirmed.
// For a pod without a status it does nothing.
func (m *Manager) Republish(uid types.UID, shown Shown) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries[uid]; e != nil {
		e.show(shown)
		m.republish(e)
	}
}

// republish requests the publication of the current status after a change of e.shown. The caller
// holds m.mu.
func (m *Manager) republish(e *entry) {
	as := e.shown.Object
	m.advance(e, input{event: onRepublish, replaced: as != nil && as.UID != e.sentTo && !e.restored})
}

// show sets e.shown, and reports whether its certainty or its object has changed. The caller then
// has to check the publication.
func (e *entry) show(now Shown) (moved bool) {
	was := e.shown
	e.shown = now
	if was.By != now.By || (was.Object == nil) != (now.Object == nil) {
		return true
	}
	return now.Object != nil && now.Object.UID != was.Object.UID
}

// Reconcile compares the status of the API's object with the published one. If another writer
// changed it, Reconcile publishes the status again and returns true. Fractions of seconds and
// the fields of other writers are not compared. The Manager keeps pod, which must not be changed.
func (m *Manager) Reconcile(pod *v1.Pod, shown Shown) (again bool) {
	if shown.Object == nil || shown.Object.Status.Phase == "" {
		return false // there is no API, or it has no status yet
	}
	current := shown.Object.Status.DeepCopy()
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
	e.pod, shown.By = pod, e.shown.By
	if e.show(shown) {
		m.republish(e)
	}
	if e.sent == nil || !e.comparable() || sameStatus(e.sent, current) {
		m.refresh(e)
		return false
	}
	final, deletion := e.facts()
	m.advance(e, input{event: onDrift, final: final, deletion: deletion})
	return true
}

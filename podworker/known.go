package podworker

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podmeta"
)

// PodSync is what SyncKnownPods tells of one pod.
type PodSync struct {
	Kind Kind
	// Orphan tells that the pod is not wanted any more.
	Orphan bool
	// HasConfig tells that a spec is known, Static that it is a static pod.
	HasConfig, Static bool
}

// SyncKnownPods compares the workers with the pods that are wanted. Those not
// wanted are terminated, records that have come to their end are dropped, and
// what remains is returned. From the first call on, a UID without a record is
// known to have nothing left.
func (m *Manager) SyncKnownPods(desired []*v1.Pod) map[types.UID]PodSync {
	want := make(map[types.UID]bool, len(desired))
	for _, p := range desired {
		want[p.UID] = true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.synced = true
	known := make(map[types.UID]PodSync, len(m.records))
	for uid, r := range m.records {
		orphan := !want[uid]
		if orphan && m.endOrphan(r) {
			continue
		}
		p := r.pod()
		known[uid] = PodSync{Kind: r.kind(), Orphan: orphan, HasConfig: p != nil, Static: p != nil && podmeta.IsStatic(p)}
	}
	return known
}

// endOrphan has an unwanted pod end, and tells whether its record is gone.
func (m *Manager) endOrphan(r *record) (gone bool) {
	r.deleted = true
	r.restart = nil
	switch {
	case r.finished, r.startedAt.IsZero() && !r.observedRuntime && !r.running && r.kind() != Terminated:
		m.forget(r)
		return true
	case r.terminatingAt.IsZero():
		r.terminatingAt = time.Now()
		r.grace, _ = effectiveGrace(0, r.pod(), nil)
		if r.cancel != nil {
			r.cancel(errSuperseded)
		}
		m.replay(r)
	}
	return false
}

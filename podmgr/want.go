package podmgr

import (
	"k8s.io/apimachinery/pkg/types"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
)

// Want says whether the sources want one pod, and how certain that is.
type Want struct {
	// Pod is the wanted pod, which is shared and read-only. It is nil if no source names the pod.
	Pod *v1.Pod
	// By is the certainty of Pod: of the pod being wanted or, if Pod is nil, of the pod not being
	// wanted. It is Remembered while a source has delivered only a Partial snapshot. It is
	// Unheard, with a nil Pod, while a source has delivered none.
	By podlife.Certainty
}

// Wanted reports whether the pod is wanted. It is No only after every source has delivered a
// snapshot that is not Partial.
func (w Want) Wanted() observed.Answer {
	switch {
	case w.Pod != nil:
		return observed.Yes
	case w.By == podlife.Confirmed:
		return observed.No
	default:
		return observed.Maybe
	}
}

// Want returns whether the sources want the pod with a UID. For static pods the answer is
// certain, since their manifests are local. For other pods, remembered pods count until
// [Manager.Confirmed].
func (m *Manager) Want(uid types.UID) Want {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := Want{Pod: m.store.byUID[uid], By: podlife.Confirmed}
	if w.Pod != nil {
		if !podmeta.IsStatic(w.Pod) && !m.IsConfirmed() {
			w.By = podlife.Remembered
		}
		return w
	}
	for _, st := range m.sources {
		switch {
		case !st.delivered:
			w.By = podlife.Unheard
		case st.snapshot.Partial:
			w.By = min(w.By, podlife.Remembered)
		}
	}
	return w
}

// IsConfirmed reports whether [Manager.Confirmed] is closed.
func (m *Manager) IsConfirmed() bool {
	select {
	case <-m.confirmed:
		return true
	default:
		return false
	}
}

package podmgr

import (
	"k8s.io/apimachinery/pkg/types"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
)

// Want is what the sources say of one pod, and how certain that is.
type Want struct {
	// Pod is the pod as it is wanted, shared and read-only; nil if no source names it.
	Pod *v1.Pod
	// By is how certain the Pod is; without one, how certain it is that no source wants
	// it. It is Remembered where a source has given what it remembers, and Unheard, without
	// a Pod, where a source has not spoken.
	By podlife.Certainty
}

// Wanted reports whether the pod is wanted. It is No only when every source has spoken
// for itself.
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

// Want returns what the sources say of the pod of a UID. A static pod is certain: it is
// read from its manifest. Of the others an API server knows, and what a source remembers
// of it counts until every source of kind API has spoken for itself once.
func (m *Manager) Want(uid types.UID) Want {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := Want{Pod: m.store.byUID[uid], By: podlife.Confirmed}
	if w.Pod != nil {
		if !podmeta.IsStatic(w.Pod) && !m.isConfirmed() {
			w.By = podlife.Remembered
		}
		return w
	}
	for _, st := range m.sources {
		switch {
		case !st.spoken:
			w.By = podlife.Unheard
		case st.snapshot.Partial:
			w.By = min(w.By, podlife.Remembered)
		}
	}
	return w
}

func (m *Manager) isConfirmed() bool {
	select {
	case <-m.confirmed:
		return true
	default:
		return false
	}
}

package agent

import (
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/internal/book"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
)

// The lives of pods. A pod that starts again under its UID has a new life with the next number
// (podlife.Life). The number has no file of its own: it is stored in the statuses, sandboxes
// and mirrors of the life, and the highest number counts.

// life returns the current life of a pod: the highest number that is stored anywhere.
func (a *Agent) life(pod *v1.Pod) podlife.Life {
	l := podlife.Life{UID: pod.UID, N: a.book.Get(pod.UID).Life}
	if last, ok := a.statuses.Last(pod.UID); ok {
		l.N = max(l.N, last.Life)
	}
	for _, s := range a.pleg.View(pod.UID).Pod.Sandboxes {
		l.N = max(l.N, podmeta.LifeIn(s.Annotations, cri.AnnotationLife))
	}
	if podmeta.IsStatic(pod) {
		if m, ok := a.pods.Mirror(pod.Namespace, pod.Name); ok {
			l.N = max(l.N, podmeta.LifeIn(m.Annotations, podmeta.AnnotationLife))
		}
	}
	return l
}

// nextLife begins the next life of a pod that ended or was rejected. Statuses of the earlier life
// no longer apply; if one is being computed, it is not shown (see show).
func (a *Agent) nextLife(pod *v1.Pod) {
	a.run.results.Lock()
	defer a.run.results.Unlock()
	next := a.life(pod).Next()
	a.book.Update(part.RefOf(pod), func(e *book.Entry) { e.Life = next.N })
	a.statuses.Forget(pod.UID)
	a.log.Debug("next life of a pod begins", zap.String("pod", pod.Namespace+"/"+pod.Name), zap.String("uid", string(pod.UID)), zap.Uint32("life", next.N))
}

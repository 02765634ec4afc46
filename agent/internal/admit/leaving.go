package admit

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/internal/book"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podworker"
)

// Margin is added to a pod's grace period. After that, no pod waits for its resources.
const Margin = 30 * time.Second

// leaving is a set of pods whose resources may soon be free: they are terminating, or they have
// reserved resources but are not admitted yet, and may still be rejected.
type leaving struct {
	uids  []types.UID
	names []string  // each is namespace/name
	until time.Time // the time by which all should be gone
}

// add adds a pod that should have ended by a time.
func (l *leaving) add(uid types.UID, name string, end time.Time) {
	l.uids, l.names = append(l.uids, uid), append(l.names, name)
	if end.After(l.until) {
		l.until = end
	}
}

// without returns pods, except the leaving ones.
func (l *leaving) without(pods []*v1.Pod) []*v1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(o *v1.Pod) bool { return slices.Contains(l.uids, o.UID) })
}

// goneBy returns the time by which a terminating pod should have ended: the end of its
// grace period plus Margin.
func goneBy(w podworker.Status) time.Time {
	by := w.EndsBy
	if by.IsZero() {
		if by = w.TerminatingAt; by.IsZero() {
			by = time.Now()
		}
		by = by.Add(podlife.Grace(w.Pod, nil, podlife.Cause{}))
	}
	return by.Add(Margin)
}

// ends lists the workers of terminating pods, without the worker of the pod with the UID except.
// It includes workers that still sync a pod which no source wants any more, since they will
// terminate it.
func (a *Admission) ends(except types.UID) []podworker.Status {
	return slices.DeleteFunc(a.Workers.List(), func(w podworker.Status) bool {
		if w.Pod == nil || w.Finished || w.UID == except {
			return true
		}
		_, wanted := a.Pods.Pod(w.UID)
		return w.Kind == podworker.Sync && wanted
	})
}

// leave returns the leaving pods, without the pod with the UID except.
func (a *Admission) leave(except types.UID) (l leaving) {
	for _, w := range a.ends(except) {
		l.add(w.UID, w.Namespace+"/"+w.Name, goneBy(w))
	}
	for uid, e := range a.Book.At(book.Reserving, book.Reserved) {
		if uid != except {
			l.add(uid, e.Ref.Namespace+"/"+e.Ref.Name+" (or its admission)", e.Since.Add(ReserveTimeout+Margin))
		}
	}
	return l
}

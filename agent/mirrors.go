package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podmgr"
)

// Mirrors keeps, in a cluster, the pods that stand there for static ones.
type Mirrors interface {
	// Ensure makes the mirror of a static pod. One that is there, which may be
	// nil, stays if it is of this version of the pod, and is replaced else.
	Ensure(ctx context.Context, pod, mirror *v1.Pod) error
	// Remove deletes a mirror whose pod is not there any more.
	Remove(ctx context.Context, mirror *v1.Pod) error
}

// A mirror that could not be made or removed is tried again after
// mirrorBackoff, doubled each time up to maxMirrorBackoff.
const (
	mirrorBackoff    = time.Second
	maxMirrorBackoff = time.Minute
	mirrorTimeout    = 30 * time.Second
)

// mirrors sees to the mirrors of static pods, beside their workers: a cluster
// that does not answer holds up no pod.
type mirrors struct {
	api  Mirrors // nil: there is no cluster
	log  *zap.Logger
	stop context.Context
	end  context.CancelFunc
	wg   sync.WaitGroup

	mu   sync.Mutex
	busy map[string]bool // by the pod's full name
}

func newMirrors(api Mirrors, log *zap.Logger) *mirrors {
	m := &mirrors{api: api, log: log, busy: map[string]bool{}}
	m.stop, m.end = context.WithCancel(context.Background())
	return m
}

// close ends what is under way.
func (m *mirrors) close() {
	m.mu.Lock()
	m.end()
	m.mu.Unlock()
	m.wg.Wait()
}

// until does something about the mirror of that name until it succeeds or is
// needed no more. What is under way for the name already is not begun again.
func (m *mirrors) until(name string, do func(context.Context) (needed bool, err error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.busy[name] || m.stop.Err() != nil {
		return
	}
	m.busy[name] = true
	m.wg.Go(func() {
		defer func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			delete(m.busy, name)
		}()
		for wait := mirrorBackoff; ; wait = min(2*wait, maxMirrorBackoff) {
			ctx, cancel := context.WithTimeout(m.stop, mirrorTimeout)
			needed, err := do(ctx)
			cancel()
			if err == nil || !needed || m.stop.Err() != nil {
				return
			}
			m.log.Warn("mirror pod", zap.String("pod", name), zap.Error(err), zap.Duration("again", wait))
			select {
			case <-m.stop.Done():
				return
			case <-time.After(wait):
			}
		}
	})
}

// mirror sees to it that a static pod has its mirror. It does not wait for it.
func (a *Agent) mirror(pod *v1.Pod) {
	if a.mirrors.api == nil || !podmeta.IsStatic(pod) {
		return
	}
	uid := pod.UID
	a.mirrors.until(podmeta.FullName(pod.Namespace, pod.Name), func(ctx context.Context) (bool, error) {
		pod, ok := a.pods.Pod(uid)
		if !ok || a.workers.TerminationRequested(uid) {
			return false, nil
		}
		there, _ := a.pods.Mirror(pod.Namespace, pod.Name)
		return true, a.mirrors.api.Ensure(ctx, pod, there)
	})
}

// removeOrphanedMirrors removes the mirrors of static pods that are gone, and
// over.
func (a *Agent) removeOrphanedMirrors() {
	if a.mirrors.api == nil {
		return
	}
	for _, m := range a.pods.Mirrors() {
		namespace, name := m.Namespace, m.Name
		if _, ok := a.pods.PodByName(namespace, name); ok || a.workers.TerminatingByFullName(podmeta.FullName(namespace, name)) {
			continue
		}
		a.mirrors.until(podmeta.FullName(namespace, name), func(ctx context.Context) (bool, error) {
			there, ok := a.pods.Mirror(namespace, name)
			if _, back := a.pods.PodByName(namespace, name); back || !ok {
				return false, nil
			}
			return true, a.mirrors.api.Remove(ctx, there)
		})
	}
}

// withoutMirrors takes the mirrors out of a change and sees to them: a pod
// whose mirror came, went or is another one publishes its status under it.
func (a *Agent) withoutMirrors(c podmgr.Change) []*v1.Pod {
	return slices.DeleteFunc(slices.Clone(c.Pods), func(p *v1.Pod) bool {
		if !podmeta.IsMirror(p) {
			return false
		}
		pod, ok := a.pods.PodByName(p.Namespace, p.Name)
		if !ok {
			a.requestCleanup()
			return true
		}
		if c.Op == podmgr.Reconcile {
			a.statuses.Reconcile(pod)
			return true
		}
		a.mirror(pod)
		a.statuses.Republish(pod.UID)
		return true
	})
}

// publishedAs is the object that shows a pod's status to the cluster.
func (a *Agent) publishedAs(pod *v1.Pod) (*v1.Pod, bool) {
	if a.mirrors.api == nil || !podmeta.IsStatic(pod) {
		return pod, true
	}
	m, ok := a.pods.Mirror(pod.Namespace, pod.Name)
	if !ok || m.DeletionTimestamp != nil {
		return nil, false
	}
	return m, true
}

package agent

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/internal/probing"
	"github.com/nodewright/nodewright/podmeta"
)

// Readiness over a start of the agent. A restart must not flip the readiness that others see.
// The journal of probes has it, and the API server; but a disk that hung has an old result or
// none, and a server that does not answer within a second has its pods remembered from that
// same disk. Until the server has answered, a status that would have to guess the readiness
// of a container that ran before is held back. The server's answer ends that, and so does the
// first check of each such container, which is made at once.

// published returns the status in which others see a pod, and whether that is known. It asks
// blocks for what they have in memory, and does not block.
func (a *Agent) published(pod *v1.Pod) (st *v1.PodStatus, known bool) {
	// A static pod without mirrors has no other status than the one here.
	if podmeta.IsStatic(pod) && len(a.hooks.Publishers) == 0 {
		return &pod.Status, true
	}
	if !a.confirmed() {
		return &v1.PodStatus{}, false
	}
	as, ok := a.hooks.PublishAs(a.guard, a.asShown(pod))
	if !ok {
		return &v1.PodStatus{}, true // nobody sees one
	}
	return &as.Status, true
}

// confirmed reports whether what the API server has is known.
func (a *Agent) confirmed() bool {
	select {
	case <-a.pods.Confirmed():
		return true
	default:
		return false
	}
}

// shownKnown reports whether the object that shows a pod is as the API server has it. The
// mirror of a static pod is remembered from before a start, and the server may have taken
// another status of it since: of the end that a shutdown of the machine gave it, for one.
// The difference to the remembered one, sent there, would show containers that run in a pod that
// is over. Other pods do not wait: a failed readiness probe is news that takes traffic away.
func (a *Agent) shownKnown(pod *v1.Pod) bool {
	return !podmeta.IsStatic(pod) || len(a.hooks.Publishers) == 0 || a.confirmed()
}

// publishHeld publishes the status of a pod that was held back, if it is no guess any more.
// It does not wait for the pod's worker, which may hang. a.run.results is held.
func (a *Agent) publishHeld(uid types.UID) {
	if !a.statuses.Held(uid) {
		return
	}
	a.workers.Resync(uid)
	w, works := a.workers.State(uid)
	st, has := a.statuses.Get(uid)
	// More follows from the startup of a sidecar: its worker computes that.
	if !works || w.Pod == nil || !has || slices.ContainsFunc(w.Pod.Spec.InitContainers, func(c v1.Container) bool { return podmeta.IsSidecar(&c) }) {
		return
	}
	pod := a.hooks.Allocated(a.guard, w.Pod)
	if !probing.Refresh(a.probes, a.published, pod, &st) {
		a.statuses.Set(pod, st)
	}
}

// publishConfirmed waits until the API server has answered, and then publishes what was
// held back, and has the loop look at the pods that waited for the server.
func (a *Agent) publishConfirmed(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-a.pods.Confirmed():
		for _, w := range a.workers.List() {
			a.run.results.Lock()
			a.publishHeld(w.UID)
			a.run.results.Unlock()
		}
		for _, p := range a.pods.Pods() {
			if podmeta.IsStatic(p) {
				a.statuses.Republish(p.UID)
			}
		}
		a.lookAgain()
		a.run.changed.Store(true) // pods may wait for the same
		wake(a.run.readmit)
		a.recordBoot(ctx)
	}
	return nil
}

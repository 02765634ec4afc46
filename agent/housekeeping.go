package agent

import (
	"context"
	"errors"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/internal/book"
	"github.com/nodewright/nodewright/agent/internal/hooks"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podworker"
)

// housekeeping compares the wanted pods with the pods that the workers, the runtime and the disk
// have. It starts missing pods and ends pods that are not wanted. It does nothing before every
// source has delivered, since a pod may still be wanted by a source that has not. It runs on the
// loop and does not block: the sweep does the work on disks.
func (a *Agent) housekeeping(ctx context.Context) {
	// Waiting pods are decided on even before that: their source has delivered them.
	a.retryWaiting(ctx, every)
	if !a.pods.AllReady() {
		return
	}
	a.run.settle()
	sweep := a.keep.Begin()
	desired := a.pods.Pods()
	// From here on, workers end the pods that no source wants any more.
	working := a.workers.SyncKnownPods(desired)
	hooks.Each(a.guard, a.hooks.Keepers, func(k part.Housekeeper) { k.Housekeep(desired) })
	a.admission.Turn() // the parts may have changed allocations
	a.revive(ctx, desired)

	known := make(map[types.UID]bool, len(desired)+len(working))
	for uid := range working {
		known[uid] = true
	}
	for _, p := range desired {
		known[p.UID] = true
	}
	// Pods in the runtime that no source wants, for example pods that were dropped while no agent
	// ran. If a source has delivered only stored pods, or the disk may have missed some, a pod is
	// kept until the source is confirmed.
	for _, l := range a.pleg.Pods() {
		if known[l.UID] {
			continue
		}
		known[l.UID] = true // its directories are removed after the pod has ended
		if a.pods.Want(l.UID).Wanted() != observed.No {
			continue
		}
		a.metrics.Orphans.Inc()
		a.workers.Update(podworker.Update{
			Type: podworker.KillUpdate, Life: a.book.Get(l.UID).Life,
			RuntimePod: &podworker.RuntimePod{UID: l.UID, Name: l.Name, Namespace: l.Namespace},
		})
	}
	if sweep {
		a.takeBack(ctx)
	}
	a.keep.Retire(ctx, known, sweep)
}

// takeBack calls part.Stopper for pods that were rejected after a restart. They may hold devices or
// CPUs from before the restart, and have no worker that would call it. As in the kubelet, the
// resources of inactive pods are given to others, even if a source still wants the pod. After an
// error the next sweep calls takeBack again.
func (a *Agent) takeBack(ctx context.Context) {
	if len(a.hooks.Stoppers) == 0 {
		return
	}
	for uid, e := range a.book.At(book.Rejected) {
		if e.Grants != book.Granted || !a.rejectedAtRest(uid) {
			continue
		}
		a.book.Update(e.Ref, func(e *book.Entry) { e.Grants = book.TakingBack })
		a.background(ctx, func(ctx context.Context) {
			if err := a.stopped(ctx, e.Ref); err != nil && !isCanceled(err) {
				a.log.Warn("failed to release resources of rejected pod", zap.String("uid", string(uid)), zap.Error(err))
			}
			a.book.Update(part.Ref{UID: uid}, func(e *book.Entry) {
				if e.Grants == book.TakingBack {
					e.Grants = book.Granted // it failed
				}
				if e.Asked && e.Stage == book.Rejected {
					e.Stage, e.Asked = book.Undone, false // its admission is decided again
				}
			})
			a.run.readmit.Set()
		})
	}
}

// revive starts pods again that ended or were rejected, if the cause is over. Examples are evicted
// static pods, which no controller replaces. Such pods are admitted like new ones, since their
// resources were released and may be in use by others.
func (a *Agent) revive(ctx context.Context, desired []*v1.Pod) {
	for _, p := range desired {
		if a.revives(p) != nil {
			a.add(ctx, p)
			a.requestCleanup() // its finished worker has to be removed first
		}
	}
}

// revives returns a function to call when an ended or rejected pod starts again, or nil if the pod
// does not start now. Until its worker has finished, its volumes may still be mounted.
func (a *Agent) revives(pod *v1.Pod) (begins func()) {
	if ph, ok := a.statuses.Phase(pod.UID); len(a.hooks.Revivers) == 0 || podmeta.IsTerminal(pod.Status.Phase) || !ok || !podmeta.IsTerminal(ph) {
		return nil
	}
	if w, works := a.workers.State(pod.UID); works && !w.Finished {
		return nil
	}
	last, _ := a.statuses.Last(pod.UID)
	return a.hooks.Revives(a.guard, pod, last.Why)
}

// rejectedAtRest reports whether a pod was rejected and nothing of it runs.
func (a *Agent) rejectedAtRest(uid types.UID) bool {
	if a.book.Get(uid).Stage != book.Rejected {
		return false
	}
	if _, works := a.workers.State(uid); works {
		return false
	}
	return a.pleg.View(uid).Stopped()
}

func isCanceled(err error) bool { return errors.Is(err, context.Canceled) }

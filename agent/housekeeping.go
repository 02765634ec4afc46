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

// housekeeping compares what is wanted with what the workers, the runtime and the
// disk have, and starts what is missing or ends what is left over. It does nothing
// before every source has spoken: until then a pod that no source named may still
// be wanted. It runs on the loop and does not block: whatever touches disks is left
// to the sweep.
func (a *Agent) housekeeping(ctx context.Context) {
	// Pods that wait are asked about even before that, as they have been named
	// already.
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
	a.admission.Turn() // the parts may have allocated anew
	a.revive(ctx, desired)

	known := make(map[types.UID]bool, len(desired)+len(working))
	for uid := range working {
		known[uid] = true
	}
	for _, p := range desired {
		known[p.UID] = true
	}
	// Pods of the runtime that nobody wants, such as those that the sources have
	// dropped while there was no agent. A source may only remember yet, and the disk may not
	// have taken all that it had: what it does not name is left alone until it is confirmed.
	for _, l := range a.pleg.Pods() {
		if known[l.UID] {
			continue
		}
		known[l.UID] = true // its directories go after it
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

// takeBack calls part.Stopper for pods that were rejected after a restart: they may hold devices
// or CPUs from before it, and have no worker that would call it. Their sources may name them
// for any time. As in the kubelet, resources of pods that are not active go to others. After
// an error the next sweep calls it again.
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
					e.Stage, e.Asked = book.Undone, false // it is decided on anew
				}
			})
			wake(a.run.readmit)
		})
	}
}

// revive begins pods again that ended, or were rejected, for a cause that is over.
// Static pods that were evicted, for one: no controller makes another. What such a pod
// had was given back when it ended, and others may have that now: it is admitted anew.
func (a *Agent) revive(ctx context.Context, desired []*v1.Pod) {
	for _, p := range desired {
		if a.revives(p) != nil {
			a.add(ctx, p)
			a.requestCleanup() // its finished worker has to go first
		}
	}
}

// revives returns what is to be called when a pod begins again that has ended, or was
// rejected, or nil if it does not begin again now. While its worker has not finished, its
// volumes are not gone yet.
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

package agent

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/internal/book"
	"github.com/nodewright/nodewright/agent/internal/hooks"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/internal/podcheck"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podworker"
	"github.com/nodewright/nodewright/statusmgr"
)

// housekeeping compares what is wanted with what the workers, the runtime and the
// disk have, and starts what is missing or ends what is left over. It does nothing
// before every source has spoken: until then a pod that no source named may still
// be wanted. It runs on the loop and does not block: whatever touches disks is left
// to the sweep.
func (a *Agent) housekeeping(ctx context.Context) {
	// Pods that wait are asked about even before that, as they have been named
	// already.
	a.retryWaiting(ctx, func(book.Entry) bool { return false })
	if !a.pods.AllReady() {
		return
	}
	if !a.isSettled() {
		close(a.run.settled)
	}
	sweep := a.run.toSweep.Swap(false) // before the look: who asks later asks again
	desired := a.pods.Pods()
	// From here on, workers end the pods that no source wants any more.
	working := a.workers.SyncKnownPods(desired)
	hooks.Each(a.guard, a.hooks.Keepers, func(k part.Housekeeper) { k.Housekeep(desired) })
	a.revive(ctx, desired)

	known := make(map[types.UID]bool, len(desired)+len(working))
	for uid := range working {
		known[uid] = true
	}
	for _, p := range desired {
		known[p.UID] = true
		// A static pod that came back under its UID while its old worker was
		// ending.
		if _, works := working[p.UID]; !works && a.lostItsWorker(p) {
			a.log.Info("pod restarted", zap.String("pod", p.Namespace+"/"+p.Name), zap.String("uid", string(p.UID)))
			a.metrics.Restarted.Inc()
			a.add(ctx, p)
		}
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
			Type:       podworker.KillUpdate,
			RuntimePod: &podworker.RuntimePod{UID: l.UID, Name: l.Name, Namespace: l.Namespace},
		})
	}
	isKnown := func(uid types.UID) bool { return known[uid] }
	a.statuses.Retain(known)
	a.probes.Retain(isKnown)
	a.events.Retain(isKnown)
	if sweep {
		a.takeBack(ctx)
		a.beginSweep(ctx, known)
	}
}

// takeBack has the parts take back what pods had that were rejected after a restart: they have
// no worker that would tell the parts of their end, and the sources name them for as long as
// they like. The kubelet lets others have what belongs to no active pod. A part that cannot is told again with the next sweep.
func (a *Agent) takeBack(ctx context.Context) {
	if len(a.hooks.Stoppers) == 0 {
		return
	}
	for uid, e := range a.book.At(book.Rejected) {
		if e.Stopped || e.Stopping || !a.rejectedAtRest(uid) {
			continue
		}
		a.book.Update(e.Ref, func(e *book.Entry) { e.Stopping = true })
		a.background(ctx, func(ctx context.Context) {
			if err := a.stopped(ctx, e.Ref); err != nil {
				a.logged("failed to take back what a rejected pod had", err, zap.String("uid", string(uid)))
			}
			a.book.Update(part.Ref{UID: uid}, func(e *book.Entry) {
				if e.Stopping = false; e.Asked && e.Stage == book.Rejected {
					e.Stage, e.Asked = book.Undone, false // it is decided on anew
				}
			})
			wake(a.run.readmit)
		})
	}
}

// beginSweep begins a sweep, or has one follow the one that is under way. There is
// one sweep at a time: two would remove the same directories.
func (a *Agent) beginSweep(ctx context.Context, known map[types.UID]bool) {
	if !a.run.sweeps.CompareAndSwap(false, true) {
		a.run.toSweep.Store(true)
		return
	}
	a.background(ctx, func(ctx context.Context) {
		a.run.leftOver.Store(a.sweep(ctx, known) != nil)
		a.run.sweeps.Store(false)
		// Asked for while this one ran: what it missed, the next one finds.
		if a.run.toSweep.Load() {
			wake(a.run.cleanup)
		}
	})
}

// isSettled reports whether every source has spoken and the loop has taken notice.
// Only the loop closes the channel.
func (a *Agent) isSettled() bool {
	select {
	case <-a.run.settled:
		return true
	default:
		return false
	}
}

// lostItsWorker reports whether a wanted pod was admitted, has not come to its
// end, and has no worker: one with its UID had ended before.
func (a *Agent) lostItsWorker(p *v1.Pod) bool {
	if podmeta.IsTerminal(p.Status.Phase) || a.book.Get(p.UID).Stage != book.Admitted {
		return false
	}
	ph, ok := a.statuses.Phase(p.UID)
	return !ok || !podmeta.IsTerminal(ph)
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
	// The phase first: nearly all pods run, and a status is a copy.
	if ph, ok := a.statuses.Phase(pod.UID); len(a.hooks.Revivers) == 0 || podmeta.IsTerminal(pod.Status.Phase) || !ok || !podmeta.IsTerminal(ph) {
		return nil
	}
	if w, works := a.workers.State(pod.UID); works && !w.Finished {
		return nil
	}
	st, ok := a.statuses.Get(pod.UID)
	if !ok {
		return nil
	}
	return a.hooks.Revives(a.guard, pod, &st)
}

// sweep removes what is left of pods that nothing knows. It runs beside the loop
// and may block on disks. Each step sees pods that came after known was made. Every
// step is tried, whatever becomes of the others; their errors, which it returns as well, are
// logged.
func (a *Agent) sweep(ctx context.Context, known map[types.UID]bool) error {
	var errs []error
	failed := func(what string, err error, fields ...zap.Field) {
		a.logged(what, err, fields...)
		errs = append(errs, err)
	}
	keep := func(uid types.UID) bool { return known[uid] || a.wanted(uid) }
	failed("failed to remove cgroups of pods that are gone", a.sweepCgroups(ctx, keep)) // it goes by the directories
	// A volume that will not go keeps its directory. Those of pods that were rejected after a
	// restart have nobody else who takes them down, and others wait for their devices.
	failed("failed to remove directories of pods that are gone", a.volumes.Sweep(ctx, func(uid types.UID) bool {
		return keep(uid) && !a.rejectedAtRest(uid)
	}))
	for _, h := range a.hooks.Sweepers {
		err := a.guard.Call(h.Name, func() error { return h.Hook.Sweep(ctx, keep) })
		failed("failed to sweep", err, zap.String("part", h.Name))
	}
	failed("failed to remove statuses of pods that are gone", a.pruneSink(known))
	a.runtime.Retain(keep)
	a.images.Retain(keep)
	return errors.Join(append(errs, a.finish(ctx, keep))...)
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

// finish informs the parts of pods of which nothing is left, and forgets those. One
// that a part cannot finish is told of again with the next sweep.
func (a *Agent) finish(ctx context.Context, keep func(types.UID) bool) error {
	var errs []error
	for uid, e := range a.book.At(book.Unknown, book.Waiting, book.Admitted, book.Rejected) {
		if keep(uid) || a.mayHaveDir(uid) {
			continue
		}
		// A pod that was never admitted was given nothing that a part could take
		// back.
		if e.Stage == book.Admitted && len(a.hooks.Finishers) > 0 {
			if err := hooks.InTurn(a.guard, a.hooks.Finishers, func(f part.Finisher) error { return f.Gone(ctx, e.Ref) }); err != nil {
				a.logged("failed to finish a pod that is gone", err, zap.String("uid", string(uid)))
				errs = append(errs, err)
				continue
			}
		}
		// Unless the entry has changed since it was read: the pod may be back.
		a.book.ForgetIf(uid, e.Changes)
	}
	return errors.Join(errs...)
}

// mayHaveDir reports whether a pod may have a directory. One with a UID that would
// lead elsewhere never got any.
func (a *Agent) mayHaveDir(uid types.UID) bool {
	if podcheck.UID(uid) != nil {
		return false
	}
	_, err := os.Lstat(a.podDir(uid))
	return !errors.Is(err, fs.ErrNotExist)
}

// pruneSink has the sink drop the statuses of pods that nothing knows. The list is
// at its largest when the sink gets it: a status too many does no harm.
func (a *Agent) pruneSink(known map[types.UID]bool) error {
	p, ok := a.cfg.Status.Sink.(statusmgr.Pruner)
	if !ok {
		return nil
	}
	keep := maps.Clone(known)
	for _, p := range a.pods.Pods() { // those that came since
		keep[p.UID] = true
	}
	return a.guard.Call("sink", func() error { return p.Prune(keep) })
}

// sweepCgroups removes the cgroups of pods that are gone. Only those that this
// agent has a directory of were its own.
func (a *Agent) sweepCgroups(ctx context.Context, keep func(types.UID) bool) error {
	if a.cfg.Cgroups == nil {
		return nil
	}
	gone, err := a.cfg.Cgroups.Sweep(ctx, func(uid types.UID) bool {
		return keep(uid) || !a.mayHaveDir(uid)
	})
	for _, uid := range gone {
		a.log.Info("removed the cgroup of a pod that is gone", zap.String("uid", string(uid)))
	}
	return err
}

func isCanceled(err error) bool { return errors.Is(err, context.Canceled) }

// SourcesErr returns which sources of pods have failed and not spoken since, and
// why; nil if there is none.
func (a *Agent) SourcesErr() error { return a.pods.Err() }

// LastTurn is when the agent's own loop turned last, whatever the runtime does;
// zero before its first turn. It turns once a minute at least. No change of the
// clock matters to what is measured from it.
func (a *Agent) LastTurn() time.Time {
	if at := a.run.beat.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

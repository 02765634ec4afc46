package agent

import (
	"context"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/internal/book"
	"github.com/nodewright/nodewright/agent/internal/hooks"
	"github.com/nodewright/nodewright/agent/internal/verdict"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/pleg"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/podworker"
	"github.com/nodewright/nodewright/volumemgr"
)

// The loop: the only goroutine that decides about admission. It passes changes on to the workers,
// and nothing here may block.

// Housekeeping runs a short time after a change, so that one pass serves a burst of changes.
// Without changes it runs at an interval, in case an event was missed.
const (
	// The kubelet makes a pass every 2 s, even if nothing has changed.
	housekeepingPause = 100 * time.Millisecond
	housekeepingEvery = time.Minute
	// A pass visits all pods. The pause is pauseByPass times as long as the last pass, up to
	// longestPause, so that passes use at most a tenth of the loop's time.
	pauseByPass  = 10
	longestPause = 2 * time.Second
)

// loop is the only goroutine that decides. It passes changes on to the pod workers, and waits for
// no worker, runtime or disk.
func (a *Agent) loop(ctx context.Context) error {
	// Pods are admitted after the runtime has been listed and the parts have been restored: before
	// that, it is unknown which pods run and with which resources.
	var changes <-chan podmgr.Change
	listed := a.pleg.Listed()
	var restored, spoken <-chan struct{}
	pause, due := time.NewTimer(housekeepingEvery), time.NewTimer(housekeepingEvery)
	defer pause.Stop()
	defer due.Stop()
	soon := false
	var took time.Duration // by the last pass
	for {
		// Health checks detect by this time whether the loop hangs.
		a.turned()
		// The wait of a pod ends at that time. The pause prevents a busy loop if the pod is not
		// concluded at once.
		if at := a.book.NextAt(); !at.IsZero() {
			due.Reset(max(time.Until(at), housekeepingPause))
		}
		select {
		case <-ctx.Done():
			return nil
		// Each step of the start enables the next one: list, parts, mirrors, pods. Until then the
		// channel of changes is nil and is never selected.
		case <-listed:
			listed, restored = nil, a.restore(ctx)
		case <-restored:
			restored, spoken = nil, a.mirrorsKnown(ctx)
		case <-spoken:
			spoken, changes = nil, a.pods.Changes()
			a.requestCleanup()
		case c, ok := <-changes:
			if !ok {
				// A closed channel would be selected forever.
				changes = nil
				continue
			}
			a.handleChange(ctx, c)
			if c.Op == podmgr.Add || c.Op == podmgr.Reconcile {
				a.run.cleanup.Set() // housekeeping without a sweep: no pod was removed
			} else {
				a.requestCleanup()
			}
		case ev := <-a.pleg.Events():
			a.handleRuntimeEvent(ev)
		case <-a.run.readmit:
			a.conclude(ctx)
		case <-due.C:
			a.retryWaiting(ctx, every)
		case <-a.run.cleanup:
			if !soon {
				soon = true
				pause.Reset(min(max(housekeepingPause, pauseByPass*took), longestPause))
			}
		// The same timer serves both: it fires soon after a change, or after a minute without
		// changes.
		case <-pause.C:
			soon = false
			a.keep.Due(time.Now())
			if changes != nil {
				begin := time.Now()
				a.housekeeping(ctx)
				took = max(time.Since(begin), a.keep.Took())
			}
			pause.Reset(housekeepingEvery)
		}
	}
}

// restore restores the state of the parts. The returned channel is closed when all of them have
// finished, or when their time limit has passed.
func (a *Agent) restore(ctx context.Context) <-chan struct{} {
	done := make(chan struct{})
	a.background(ctx, func(ctx context.Context) {
		defer close(done)
		a.hooks.Restore(ctx, a.guard, a.facts.handlers.Learn)
	})
	return done
}

// mirrorsTimeout is how long static pods wait at the start for the source that delivers their
// mirrors, since a mirror may be the only trace of a pod that has ended. If the API server does not
// answer, that source delivers its stored pods earlier than this (podsync.SourceConfig).
const mirrorsTimeout = 2500 * time.Millisecond

// mirrorsKnown returns a channel that is closed when static pods can be admitted. If statuses are
// published under mirrors, the first status of a static pod continues the status of its mirror,
// which may come from another source than the pod.
func (a *Agent) mirrorsKnown(ctx context.Context) <-chan struct{} {
	done := make(chan struct{})
	if len(a.hooks.Publishers) == 0 {
		close(done)
		return done
	}
	a.background(ctx, func(ctx context.Context) {
		defer close(done)
		late := time.NewTimer(mirrorsTimeout)
		defer late.Stop()
		select {
		case <-a.pods.Ready():
		case <-late.C:
		case <-ctx.Done():
		}
	})
	return done
}

// requestCleanup requests housekeeping, with a sweep of pods that are gone. It never blocks.
func (a *Agent) requestCleanup() {
	a.keep.Ask() // before the wake
	a.run.cleanup.Set()
}

// turned records the time at which the loop has handled an event or a timer; see
// LastTurn.
func (a *Agent) turned() {
	now := time.Now()
	a.run.beat.Store(&now)
	a.admission.Turn()
}

// handleChange acts on one change of the wanted pods. A change may have many pods, such
// as all pods of a source that has delivered for the first time.
func (a *Agent) handleChange(ctx context.Context, c podmgr.Change) {
	c.Pods = a.withoutMirrors(c)
	a.recordWanted(c)
	switch c.Op {
	case podmgr.Add:
		// The oldest come first, as in the kubelet: if not all fit, the older pods are admitted.
		slices.SortStableFunc(c.Pods, func(x, y *v1.Pod) int {
			return x.CreationTimestamp.Compare(y.CreationTimestamp.Time)
		})
		// Running pods are adopted before other pods are admitted, so that they keep their
		// resources.
		a.adopt(c.Pods)
		for _, p := range c.Pods {
			a.add(ctx, p)
		}
	case podmgr.Update, podmgr.Delete:
		for _, p := range c.Pods {
			a.change(ctx, p)
		}
	case podmgr.Remove:
		for _, p := range c.Pods {
			a.remove(ctx, p)
		}
	case podmgr.Reconcile:
		for _, p := range c.Pods {
			if a.reconcile(p) || a.othersWrote(p) {
				a.workers.Resync(p.UID)
			}
		}
	}
	if len(c.Configs) > 0 {
		a.configsChanged(c.Configs)
	}
}

// withoutMirrors removes the mirrors of static pods from a change, and passes them to the parts
// that follow mirrors.
func (a *Agent) withoutMirrors(c podmgr.Change) []*v1.Pod {
	return slices.DeleteFunc(slices.Clone(c.Pods), func(p *v1.Pod) bool {
		if !podmeta.IsMirror(p) {
			return false
		}
		hooks.Each(a.guard, a.hooks.Mirrors, func(m part.MirrorWatcher) { m.MirrorChanged(c.Op, p) })
		return true
	})
}

// adopt calls the parts for the pods that run already, before resources are given to other pods.
func (a *Agent) adopt(pods []*v1.Pod) {
	if len(a.hooks.Reservers) == 0 {
		return
	}
	for _, pod := range pods {
		seen := a.pleg.View(pod.UID)
		if seen.Runs() != observed.Yes || a.workers.TerminationRequested(pod.UID) {
			continue
		}
		a.hooks.Recall(a.guard, pod, seen.Pod)
		pod = a.hooks.Allocated(a.guard, pod)
		hooks.Each(a.guard, a.hooks.Reservers, func(r part.Reserver) { r.Adopt(pod) })
	}
}

// add decides whether to admit a pod. It is called for new pods, for waiting ones, and for those
// that start again; a running pod is adopted.
func (a *Agent) add(ctx context.Context, pod *v1.Pod) {
	a.statuses.Adopt(pod, a.shown(pod))
	if begins := a.revives(pod); begins != nil {
		begins()
		a.nextLife(pod)
	}
	// Nothing of the pod starts: its worker only removes what is left.
	if podmeta.IsTerminal(pod.Status.Phase) || a.isOver(pod.UID) {
		a.begin(pod)
		return
	}
	if pod.DeletionTimestamp == nil && a.awaits(pod) {
		return
	}
	seen := a.pleg.View(pod.UID)
	a.hooks.Recall(a.guard, pod, seen.Pod)
	if pod.DeletionTimestamp != nil { // a pod that only has to terminate reserves nothing
		a.begin(a.hooks.Allocated(a.guard, pod))
		return
	}
	if r, decided := a.decide(ctx, a.hooks.Allocated(a.guard, pod), seen); decided {
		a.settle(pod, r)
	}
}

// isOver reports whether a pod has ended and has not been started again.
func (a *Agent) isOver(uid types.UID) bool {
	w, works := a.workers.State(uid)
	last, ok := a.statuses.Last(uid)
	return works && w.Finished && ok && podlife.Ended(last.Status.Phase, last.Why)
}

// settle applies the decision on a pod: r is nil if it is admitted. It is called on the loop, at
// once or when a reservation has ended.
func (a *Agent) settle(pod *v1.Pod, r *part.Rejection) {
	if r != nil {
		a.reject(pod, *r)
		return
	}
	switch last, ok := a.statuses.Last(pod.UID); {
	case !ok:
	case last.Why.Kind == podlife.Rejected:
		a.nextLife(pod)
	case a.book.Get(pod.UID).Why != nil && !verdict.Ran(&last.Status):
		a.statuses.Forget(pod.UID) // the status only says that the pod waited
	}
	a.book.Update(part.RefOf(pod), func(e *book.Entry) { e.Grants = book.Granted })
	a.recordVerdict(pod, a.life(pod).N, podlife.Cause{})
	a.begin(a.hooks.Allocated(a.guard, pod))
}

// begin passes a pod to its worker. From here on the worker decides what happens to it; the loop
// only passes changes on.
func (a *Agent) begin(pod *v1.Pod) {
	a.warnOfPeriods(pod)
	a.book.Admit(part.RefOf(pod))
	a.admission.Counts(pod)
	a.update(podworker.CreateUpdate, pod, nil)
}

// update passes a pod to its worker.
func (a *Agent) update(typ podworker.UpdateType, pod *v1.Pod, kill *podworker.KillOptions) {
	a.workers.Update(podworker.Update{Type: typ, Pod: pod, Life: a.life(pod).N, Start: time.Now(), Kill: kill})
}

// change handles a new version of a pod or its deletion. What happens depends on the stage of its
// admission.
func (a *Agent) change(ctx context.Context, pod *v1.Pod) {
	switch a.book.Get(pod.UID).Stage {
	case book.Reserving, book.Reserved:
		if pod.DeletionTimestamp == nil {
			return // its newest version is handled when that has ended
		}
	case book.Rejected:
		if pod.DeletionTimestamp == nil && !podmeta.IsStatic(pod) {
			return // its phase may be on the way to an API server, where Failed is final
		}
		fallthrough
	case book.Waiting:
		if pod.DeletionTimestamp == nil {
			a.add(ctx, pod)
			return
		}
	}
	// Reservations are released, even those that are still being made. An admitted pod has none.
	if pod.DeletionTimestamp != nil {
		a.abandon(ctx, pod.UID)
	}
	a.warnOfPeriods(pod)
	if pod.DeletionTimestamp == nil {
		a.warnOfFeatures(pod)
		pod = a.hooks.Reallocated(a.guard, pod)
	}
	a.update(podworker.ConfigUpdate, pod, nil)
}

// warnOfFeatures reports an update that needs features which the node does not declare.
// The pod is updated nevertheless.
func (a *Agent) warnOfFeatures(pod *v1.Pod) {
	w, ok := a.workers.State(pod.UID)
	if !ok || w.Pod == nil {
		return
	}
	if lacks := a.node.Undeclared(podmeta.FeaturesOfUpdate(w.Pod, pod)); len(lacks) > 0 {
		a.events.Event(pod, v1.EventTypeWarning, "FailedNodeDeclaredFeaturesCheck",
			"the update needs features that the node does not declare: "+strings.Join(lacks, ", "))
	}
}

// remove handles a pod that its source no longer delivers. The pod's worker terminates it with the
// grace period of its spec.
func (a *Agent) remove(ctx context.Context, pod *v1.Pod) {
	a.abandon(ctx, pod.UID)
	if a.pods.Want(pod.UID).By == podlife.Unheard && pod.DeletionTimestamp == nil {
		// A source that has not delivered yet may still want the pod; housekeeping decides when all
		// have delivered.
		return
	}
	a.update(podworker.KillUpdate, pod, nil)
}

// handleRuntimeEvent requests a sync of the pod. Housekeeping handles pods that no source wants.
func (a *Agent) handleRuntimeEvent(ev pleg.Event) {
	// Parts come first: the worker's next step may depend on what they record.
	hooks.Each(a.guard, a.hooks.Watchers, func(w part.RuntimeWatcher) { w.Happened(ev) })
	if !a.workers.Resync(ev.UID) {
		a.requestCleanup()
	}
}

// configsChanged updates the volumes of changed objects, and wakes every pod whose last sync
// failed: a missing object may exist now.
func (a *Agent) configsChanged(configs []podmgr.Object) {
	if v, ok := a.volumes.(VolumeWatcher); ok {
		for _, c := range configs {
			v.Changed(volumemgr.Ref{Kind: c.Kind, Namespace: c.Namespace, Name: c.Name})
		}
	}
	for _, w := range a.workers.List() {
		if w.LastError != "" {
			a.runtime.Retry(w.UID)
			a.workers.Resync(w.UID)
		}
	}
}

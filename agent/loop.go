package agent

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/pleg"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/podworker"
)

// Housekeeping follows a cause after a pause that lets a burst of causes
// share one pass, and comes by itself only as a net below the events.
const (
	housekeepingPause = 100 * time.Millisecond
	housekeepingEvery = time.Minute
)

// loop is the one goroutine that decides: it hands causes to the pod workers
// and never waits for any of them, for the runtime or for a disk.
func (a *Agent) loop(ctx context.Context) error {
	// Pods are taken up once the runtime has been listed: only then is it
	// known which of them run already and must not be turned away.
	var changes <-chan podmgr.Change
	listed := a.pleg.Listed()
	var restored <-chan struct{}
	pause := time.NewTimer(housekeepingEvery)
	defer pause.Stop()
	soon := false
	for {
		a.turned()
		select {
		case <-ctx.Done():
			return nil
		case <-listed:
			listed = nil
			restored = a.restoredDevices(ctx, a.restorePlacement(ctx))
		case <-restored:
			restored = nil
			changes = a.pods.Changes()
			a.requestCleanup()
		case c, ok := <-changes:
			if !ok {
				changes = nil
				continue
			}
			a.handleChange(c)
			a.requestCleanup()
		case ev := <-a.pleg.Events():
			a.handleRuntimeEvent(ev)
		case <-a.decisions.news:
			a.takeNews()
		case <-a.cleanup:
			if !soon {
				soon = true
				pause.Reset(housekeepingPause)
			}
		case <-pause.C:
			soon = false
			if listed == nil && restored == nil {
				a.housekeeping(ctx)
			}
			pause.Reset(housekeepingEvery)
		}
	}
}

// requestCleanup asks for housekeeping soon. It never blocks.
func (a *Agent) requestCleanup() {
	select {
	case a.cleanup <- struct{}{}:
	default:
	}
}

func (a *Agent) handleChange(c podmgr.Change) {
	c.Pods = a.withoutMirrors(c)
	switch c.Op {
	case podmgr.Add:
		slices.SortStableFunc(c.Pods, func(x, y *v1.Pod) int {
			return x.CreationTimestamp.Compare(y.CreationTimestamp.Time)
		})
		a.adoptRunning(c.Pods)
		for _, p := range c.Pods {
			a.add(p)
		}
	case podmgr.Update, podmgr.Delete:
		for _, p := range c.Pods {
			a.update(p)
		}
	case podmgr.Remove:
		for _, p := range c.Pods {
			a.remove(p)
		}
	case podmgr.Reconcile:
		for _, p := range c.Pods {
			a.statuses.Reconcile(p)
			a.workers.Resync(p.UID)
		}
	}
	if len(c.Configs) > 0 {
		a.changed(c.Configs)
		a.retryFailed()
	}
}

func (a *Agent) add(pod *v1.Pod) {
	start := time.Now()
	if !podmeta.IsTerminal(pod.Status.Phase) && !a.workers.TerminationRequested(pod.UID) {
		obs, _ := a.pleg.Get(pod.UID) // also what was seen before the last look failed
		a.grants.recall(pod, obs)
		if r := a.admission(a.grants.of(pod), obs); r == undecided {
			return // until a.takeNews
		} else if r != nil {
			a.reject(pod, *r)
			return
		}
		if st, ok := a.statuses.Get(pod.UID); ok && (wasRejected(&st) || a.beginsAgain(pod, &st)) || a.isRejected(pod.UID) {
			a.statuses.Forget(pod.UID) // that it was turned away once, or waited, or ended with the machine, is over
		}
		// What it asks beyond is decided on when all that run are known.
		pod = a.grants.of(pod)
	}
	a.warnOfPeriods(pod)
	a.setAdmitted(pod.UID)
	a.workers.Update(podworker.Update{Type: podworker.CreateUpdate, Pod: pod, Start: start})
}

func (a *Agent) update(pod *v1.Pod) {
	if a.deciding(pod) {
		return
	}
	if a.isRejected(pod.UID) && pod.DeletionTimestamp == nil {
		a.add(pod)
		return
	}
	a.warnOfPeriods(pod)
	if pod.DeletionTimestamp == nil {
		pod = a.resized(pod)
	}
	a.workers.Update(podworker.Update{Type: podworker.ConfigUpdate, Pod: pod, Start: time.Now()})
}

func (a *Agent) remove(pod *v1.Pod) {
	a.dropDecision(pod.UID)
	if !a.pods.AllReady() {
		// A source that has not spoken yet may still want the pod;
		// housekeeping decides once all have.
		return
	}
	a.workers.Update(podworker.Update{Type: podworker.KillUpdate, Pod: pod, Start: time.Now()})
}

// handleRuntimeEvent lets the pod's worker look at what happened. A pod that
// nobody wants is a matter for housekeeping.
func (a *Agent) handleRuntimeEvent(ev pleg.Event) {
	a.gc.happened(ev)
	if !a.workers.Resync(ev.UID) {
		a.requestCleanup()
	}
}

// retryFailed wakes every pod whose last try failed: a ConfigMap or a Secret
// that it lacked may be there now.
func (a *Agent) retryFailed() {
	for _, w := range a.workers.List() {
		if w.LastError != "" {
			a.runtime.Retry(w.UID)
			a.workers.Resync(w.UID)
		}
	}
}

// admission asks every Admitter. A pod that has containers running was
// admitted in an earlier life of the agent and stays.
func (a *Agent) admission(pod *v1.Pod, obs *observed.Pod) *Rejection {
	if obs.AnyRunning() {
		return a.place(pod, obs)
	}
	others := a.activePods(pod)
	if r, ok := a.decisions.take(pod.UID); ok {
		return a.orLater(pod, others, r)
	}
	for _, ad := range a.admit {
		if r := ad.Admit(pod, others); r != nil {
			return a.orLater(pod, others, r)
		}
	}
	if r := a.place(pod, obs); r != nil {
		return a.orLater(pod, others, r)
	}
	return nil
}

// activePods are the pods that hold or will hold resources of the node,
// except for pod itself.
func (a *Agent) activePods(pod *v1.Pod) []*v1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	var active []*v1.Pod
	for _, p := range a.pods.Pods() {
		if _, deciding := a.decisions.has(p.UID); p.UID == pod.UID || !a.admitted[p.UID] && !deciding || a.workers.KnownTerminated(p.UID) {
			continue
		}
		if ph, ok := a.statuses.Phase(p.UID); ok && podmeta.IsTerminal(ph) && !a.workers.TerminationRequested(p.UID) {
			continue
		}
		active = append(active, a.grants.of(p))
	}
	return active
}

func (a *Agent) reject(pod *v1.Pod, r Rejection) {
	if a.wait(pod, r) {
		return
	}
	r.RetryUntil = time.Time{}
	a.mu.Lock()
	a.rejected[pod.UID] = r
	a.mu.Unlock()
	a.log.Warn("pod rejected", zap.String("pod", pod.Namespace+"/"+pod.Name),
		zap.String("reason", r.Reason), zap.String("message", r.Message))
	a.metrics.rejections.WithLabelValues(rejectionLabel(r.Reason)).Inc()
	a.events.Event(pod, v1.EventTypeWarning, r.Reason, r.Message)
	a.statuses.Set(pod, rejectedStatus(pod, r))
}

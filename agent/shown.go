package agent

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/internal/lifelog"
	"github.com/nodewright/nodewright/agent/internal/probing"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/statusmgr"
)

// Readiness over a restart of the agent. A restart must not change the published readiness, which
// is stored in the journal of probes and at the API server. But if the disk hung, the journal may
// be old or empty; and if the server does not answer within a second, pods come from the same
// disk. In this case the readiness of a container that is older than the agent would be a guess. A
// status with such a guess is withheld until the server has answered, or until each such container
// has been checked; the first check is made at once.

// shown returns how the pod is published. It reads memory of other blocks, and does not block.
func (a *Agent) shown(pod *v1.Pod) statusmgr.Shown {
	// Without mirrors, the status here is the only status of a static pod.
	if podmeta.IsStatic(pod) && len(a.hooks.Publishers) == 0 {
		return statusmgr.Itself(pod)
	}
	s := statusmgr.Shown{By: podlife.Remembered}
	if a.pods.IsConfirmed() {
		s.By = podlife.Confirmed
	}
	s.Object, _ = a.hooks.PublishAs(a.guard, a.asShown(pod))
	return s
}

// published returns the published status of a pod, and whether it is known.
func (a *Agent) published(pod *v1.Pod) (st *v1.PodStatus, known bool) {
	s := a.shown(pod)
	if known = s.By == podlife.Confirmed; !known || s.Object == nil {
		return &v1.PodStatus{}, known // no status is published
	}
	return &s.Object.Status, true
}

// show publishes a status, unless the pod's next life has begun since the status was computed.
// If only the number of the life was learned in between, for example from a stored status that
// a slow disk delivered late, it is still the same life. The caller holds a.run.results.
//
// The mirror of a static pod may come from the stored state. The server may have a newer status
// of this mirror, for example because a shutdown of the machine ended the pod. A patch against
// the stored status would then show running containers in a pod that has ended. So the status
// of a static pod waits for the server. The status of another pod waits only if it is a guess:
// a failed readiness probe has to be published at once, since it takes traffic away from the
// pod.
func (a *Agent) show(pod *v1.Pod, r statusmgr.Report) {
	if r.Life < a.book.Get(pod.UID).Life {
		return
	}
	r.Life = max(r.Life, a.life(pod).N)
	a.recordStatus(pod, r.Life, &r.Status)
	if r.Why.Shows() {
		a.recordVerdict(pod, r.Life, r.Why)
	}
	guess := probing.Refresh(a.probes, a.published, pod, &r.Status)
	if last, has := a.statuses.Last(pod.UID); has {
		lifelog.Log(a.log, pod, &last.Status, &r.Status)
	} else if pod.Status.Phase == "" || pod.Status.Phase == v1.PodPending {
		lifelog.Log(a.log, pod, &pod.Status, &r.Status)
	}
	r.Shown = a.shown(pod)
	if !podmeta.IsStatic(pod) {
		if !guess {
			r.Shown.By = podlife.Confirmed
		}
		a.statuses.Show(pod, r)
		return
	}
	// The first status continues the status of the mirror. The new status may show that the mirror
	// is outdated.
	if _, has := a.statuses.Last(pod.UID); !has {
		r.Shown.By = podlife.Unheard
	}
	a.statuses.Show(pod, r)
	if now := a.shown(pod); now.By != r.Shown.By || now.Object != r.Shown.Object {
		a.statuses.Republish(pod.UID, now)
	}
}

// republish publishes the last status of a pod under its current object. A status that was withheld
// may be a guess, so it is not published as it is: it is computed again, here and not by the pod's
// worker, which may hang.
func (a *Agent) republish(uid types.UID) {
	a.run.results.Lock()
	defer a.run.results.Unlock()
	a.showAgain(uid)
	if pod, ok := a.pods.Pod(uid); ok && podmeta.IsStatic(pod) && !a.withheld(uid) {
		a.statuses.Republish(uid, a.shown(pod))
	}
}

// reconcile publishes a pod's status again if another writer has changed it, and reports whether it
// did.
func (a *Agent) reconcile(pod *v1.Pod) (again bool) {
	a.run.results.Lock()
	defer a.run.results.Unlock()
	return a.statuses.Reconcile(pod, a.shown(pod))
}

// withheld reports whether a pod has a worker and a status that is not published.
func (a *Agent) withheld(uid types.UID) bool {
	last, ok := a.statuses.Last(uid)
	_, works := a.workers.State(uid)
	return ok && works && last.Shown.By < podlife.Confirmed
}

// showAgain publishes a pod's withheld status, if it is no longer a guess. The caller holds
// a.run.results.
func (a *Agent) showAgain(uid types.UID) {
	if !a.withheld(uid) {
		return
	}
	a.workers.Resync(uid)
	w, works := a.workers.State(uid)
	last, _ := a.statuses.Last(uid)
	// The startup of a sidecar changes more than the status: its worker computes that.
	if !works || w.Pod == nil || slices.ContainsFunc(w.Pod.Spec.InitContainers, func(c v1.Container) bool { return podmeta.IsSidecar(&c) }) {
		return
	}
	last.Status = *last.Status.DeepCopy()
	a.show(a.hooks.Allocated(a.guard, w.Pod), last)
}

// publishConfirmed waits until the API server has answered. Then it publishes withheld statuses,
// and makes the loop decide on the pods that waited for the server.
func (a *Agent) publishConfirmed(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-a.pods.Confirmed():
		for _, w := range a.workers.List() {
			a.republish(w.UID)
			if w.Pod != nil && !podmeta.IsStatic(w.Pod) {
				a.workers.Resync(w.UID) // it may have been synced with a stored definition: see certainty
			}
		}
		for _, p := range a.pods.Pods() { // some have no worker
			a.republish(p.UID)
		}
		host{a}.Readmit() // pods may wait for the server too
		a.background(ctx, a.boots.Write)
	}
	return nil
}

package agent

import (
	"context"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/internal/book"
	"github.com/nodewright/nodewright/agent/internal/hooks"
	"github.com/nodewright/nodewright/agent/internal/verdict"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/statusmgr"
)

// Admission of pods, in the kubelet's order: first the node's own properties, then every part in
// turn, then reservations. All of it runs on the loop, so that two pods are never admitted for the
// same resources. Only reservations that have to wait for a plugin, a disk or a server run in a
// goroutine of their own.

// decide decides whether a pod may run. The result decided is false while parts reserve resources
// for the pod, or take a reservation back: the loop decides about the pod after that.
//
// A pod with running containers was admitted by an earlier process of the agent, and is admitted
// again. Otherwise the node's own properties are checked first, then every Admitter, then every
// Reserver.
func (a *Agent) decide(ctx context.Context, pod *v1.Pod, seen observed.View) (r *part.Rejection, decided bool) {
	if seen.Runs() == observed.Yes {
		hooks.Each(a.guard, a.hooks.Reservers, func(p part.Reserver) { p.Adopt(pod) })
		return nil, true
	}
	// No second decision begins while one is pending: conclude uses the newest version of the pod.
	switch a.book.Get(pod.UID).Stage {
	case book.Waiting:
		a.book.Update(part.RefOf(pod), func(e *book.Entry) { e.Asked = false })
	case book.Reserving, book.Reserved, book.Undoing, book.Undone:
		return nil, false
	case book.Rejected:
		taking := false
		a.book.Update(part.RefOf(pod), func(e *book.Entry) {
			taking = e.Grants == book.TakingBack
			e.Asked = taking
		})
		if taking {
			return nil, false
		}
	}
	// A pod that has ended is not decided on: a rejection would be shown as the reason of its end.
	// Its worker makes the parts release its resources. If a static pod ended before this process,
	// its mirror may show that.
	last, ok := a.statuses.Last(pod.UID)
	if shown, known := a.published(pod); !ok && known {
		last.Status = *shown
		last.Why, _ = podlife.CauseOf(shown)
	}
	if podlife.Ended(last.Status.Phase, last.Why) {
		return nil, true
	}
	// A rejection by an earlier process may still be on its way to an API server, where Failed is
	// final.
	if last.Why.Kind == podlife.Rejected && !podmeta.IsStatic(pod) {
		return &part.Rejection{Reason: last.Why.Reason, Message: last.Why.Message}, true
	}
	if v := a.admission.Decide(pod); v.Why != nil {
		a.preempt(ctx, pod, v.Victims)
		return v.Why, true
	}
	return a.reserve(ctx, pod)
}

// reject makes a pod wait if it may still be admitted, and otherwise rejects it.
func (a *Agent) reject(pod *v1.Pod, r part.Rejection) {
	if a.wait(pod, r) {
		return
	}
	r.RetryUntil = time.Time{}
	a.book.Update(part.RefOf(pod), func(e *book.Entry) { e.Stage, e.Why = book.Rejected, &r })
	a.log.Warn("pod rejected", zap.String("pod", pod.Namespace+"/"+pod.Name),
		zap.String("reason", r.Reason), zap.String("message", r.Message))
	a.metrics.Rejected(r.Reason)
	a.event(pod, verdict.Why(r))
	a.setStatus(pod, statusmgr.Report{Life: a.life(pod).N, Status: verdict.Rejected(pod, r), Why: verdict.Why(r), Runs: a.mayRun(pod.UID)})
	a.requestCleanup() // see takeBack
}

// wait makes a pod wait, if the rejection r allows that and the time limit of the wait has not
// passed. It reports whether the pod waits.
func (a *Agent) wait(pod *v1.Pod, r part.Rejection) bool {
	if !r.Waits() {
		return false
	}
	before := a.book.Get(pod.UID)
	waits := before.Why.Waits() && before.Why.Reason == r.Reason
	// The limit counts from the first wait for that reason. Otherwise each new wait would extend
	// it.
	if waits && !r.Outside {
		r.RetryUntil = before.Why.RetryUntil
	}
	left := time.Until(r.RetryUntil)
	if left <= 0 {
		return false
	}
	seen := a.pleg.View(pod.UID)
	a.book.Update(part.RefOf(pod), func(e *book.Entry) { e.Stage, e.Why, e.Seen = book.Waiting, &r, seen.Depth })
	if !waits {
		a.log.Info("pod waits to be admitted", zap.String("pod", pod.Namespace+"/"+pod.Name),
			zap.String("reason", r.Reason), zap.String("message", r.Message), zap.Duration("for", left))
		a.event(pod, verdict.Why(r))
	}
	if !waits || before.Why.Message != r.Message || before.Seen < seen.Depth {
		var previous *v1.PodStatus
		switch last, ok := a.statuses.Last(pod.UID); {
		case ok && last.Why.Kind == podlife.Rejected:
			a.nextLife(pod) // otherwise the pod would count as ended, and start without its reservation
		case ok:
			previous = &last.Status
		}
		a.setStatus(pod, statusmgr.Report{Life: a.life(pod).N, Status: verdict.Waiting(pod, r, previous, seen), Why: verdict.Why(r)})
	}
	return true
}

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

// Whether a pod may run here. The order is that of the kubelet: what the node is,
// then every part in turn, then what has to be reserved. All of it runs on the
// loop, so that two pods are never admitted to the same room; only reservations
// that have to wait for somebody are made beside it.

// decide asks whether a pod may run. decided is false while its reservation is
// under way: the loop concludes when that has ended.
//
// A pod with running containers was admitted by an earlier process of the agent, and
// is admitted again. Otherwise the node's own properties are checked first, then every
// Admitter, then every Reserver.
func (a *Agent) decide(ctx context.Context, pod *v1.Pod, seen observed.View) (r *part.Rejection, decided bool) {
	if seen.Runs() == observed.Yes {
		hooks.Each(a.guard, a.hooks.Reservers, func(p part.Reserver) { p.Adopt(pod) })
		return nil, true
	}
	// A pod that is being decided on is not decided on twice: conclude looks at its
	// newest version.
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
	// Nobody is asked about one that has come to its end: what they answer would be shown as
	// the reason of that. Its worker has the parts give back what it had. Of a static pod that
	// ended before this process, its mirror may say so.
	last, ok := a.statuses.Last(pod.UID)
	if shown, known := a.published(pod); !ok && known {
		last.Status = *shown
		last.Why, _ = podlife.CauseOf(shown)
	}
	if podlife.Ended(last.Status.Phase, last.Why) {
		return nil, true
	}
	// A rejection of before this process may be on its way to an API server, where Failed is final.
	if last.Why.Kind == podlife.Rejected && !podmeta.IsStatic(pod) {
		return &part.Rejection{Reason: last.Why.Reason, Message: last.Why.Message}, true
	}
	if v := a.admission.Decide(pod); v.Why != nil {
		for _, victim := range v.Victims {
			a.preempt(ctx, pod, victim)
		}
		return v.Why, true
	}
	return a.reserve(ctx, pod)
}

// reject lets a pod wait, or rejects it for good.
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

// wait keeps a pod for later, if that is the answer and its time is not over, and
// reports whether it did.
func (a *Agent) wait(pod *v1.Pod, r part.Rejection) bool {
	if !r.Waits() {
		return false
	}
	before := a.book.Get(pod.UID)
	waits := before.Why.Waits() && before.Why.Reason == r.Reason
	// The limit counts from the first wait for that reason, or a pod could wait for
	// ever, each time a little longer.
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
			a.nextLife(pod) // else the pod would count as one that came to its end, and be begun without its reservation
		case ok:
			previous = &last.Status
		}
		a.setStatus(pod, statusmgr.Report{Life: a.life(pod).N, Status: verdict.Waiting(pod, r, previous, seen), Why: verdict.Why(r)})
	}
	return true
}

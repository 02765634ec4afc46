package agent

import (
	"context"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/internal/book"
	"github.com/nodewright/nodewright/agent/internal/ending"
	"github.com/nodewright/nodewright/agent/internal/hooks"
	"github.com/nodewright/nodewright/agent/internal/verdict"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podworker"
)

// decide asks whether a pod may run. decided is false while its reservation is
// under way: the loop concludes when that has ended.
//
// A pod with running containers was admitted by an earlier process of the agent, and
// is admitted again. Otherwise the node's own properties are checked first, then every
// Admitter, then every Reserver.
func (a *Agent) decide(ctx context.Context, pod *v1.Pod, obs *observed.Pod) (r *part.Rejection, decided bool) {
	if obs.AnyRunning() {
		hooks.Each(a.guard, a.hooks.Reservers, func(p part.Reserver) { p.Adopt(pod) })
		return nil, true
	}
	switch a.book.Get(pod.UID).Stage {
	case book.Waiting:
		a.book.Update(part.RefOf(pod), func(e *book.Entry) { e.Asked = false })
	case book.Reserving, book.Reserved, book.Undoing, book.Undone:
		return nil, false
	}
	others := a.activePods(pod.UID)
	if r := a.admit(pod, others); r != nil {
		return a.orPreempt(ctx, pod, others, a.orLater(pod, others, r)), true
	}
	if st, ok := a.statuses.Get(pod.UID); ok && podmeta.IsTerminal(st.Phase) && !verdict.WasRejected(&st) {
		return nil, true // it has come to its end, and its worker has the parts give back what it had
	}
	return a.reserve(ctx, pod, others)
}

// admit asks what the node is, and every Admitter in turn.
func (a *Agent) admit(pod *v1.Pod, others []*v1.Pod) *part.Rejection {
	if r := a.node.Admit(pod, others); r != nil {
		return r
	}
	for _, h := range a.hooks.Admitters {
		var r *part.Rejection
		if err := a.guard.Call(h.Name, func() error { r = h.Hook.Admit(pod, others); return nil }); err != nil {
			return hooks.Unexpected(err)
		}
		if r != nil {
			return r
		}
	}
	return nil
}

// activePods are the pods that hold or will hold resources of the node, except
// for one.
func (a *Agent) activePods(except types.UID) []*v1.Pod {
	counted := a.book.At(book.Admitted, book.Reserving, book.Reserved)
	var active []*v1.Pod
	for _, p := range a.pods.Pods() {
		if _, counts := counted[p.UID]; !counts || p.UID == except || a.workers.KnownTerminated(p.UID) {
			continue
		}
		if ph, ok := a.statuses.Phase(p.UID); ok && podmeta.IsTerminal(ph) && !a.workers.TerminationRequested(p.UID) {
			continue
		}
		active = append(active, a.hooks.Allocated(a.guard, p))
	}
	return active
}

// leave are those that leave, but for one.
func (a *Agent) leave(except types.UID) (l ending.Pods) {
	for _, w := range a.workers.List() {
		if w.Pod == nil || w.Finished || w.UID == except || w.Kind == podworker.Sync && a.wanted(w.UID) {
			continue
		}
		l.Add(w.UID, w.Namespace+"/"+w.Name, ending.At(w))
	}
	for uid, e := range a.book.At(book.Reserving, book.Reserved) { // and those that may not come
		if uid != except {
			l.Add(uid, e.Ref.Namespace+"/"+e.Ref.Name+" (or its admission)", e.Since.Add(reserveTimeout+ending.Margin))
		}
	}
	return l
}

// orLater lets a pod wait that would not be rejected if pods that are ending had
// ended: what they hold is free soon.
func (a *Agent) orLater(pod *v1.Pod, others []*v1.Pod, r *part.Rejection) *part.Rejection {
	if r == nil || r.Final || r.Waits() {
		return r
	}
	l := a.leave(pod.UID)
	if !l.Until.After(time.Now()) || !a.fitsWithout(pod, others, l) {
		return r
	}
	slices.Sort(l.Names)
	return &part.Rejection{
		Reason: r.Reason, RetryUntil: l.Until,
		Message: r.Message + "; it waits for the end of " + strings.Join(l.Names, ", "),
	}
}

// fitsWithout reports whether a pod would be admitted if some had gone.
func (a *Agent) fitsWithout(pod *v1.Pod, others []*v1.Pod, l ending.Pods) bool {
	if a.admit(pod, l.Without(others)) != nil {
		return false
	}
	for _, h := range a.hooks.Forecasters {
		if !hooks.Ask(a.guard, h, func(f part.Forecaster) bool { return f.FitsWithout(pod, l.UIDs) }) {
			return false
		}
	}
	return true
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
	a.events.Event(pod, v1.EventTypeWarning, r.Reason, r.Message)
	a.statuses.Set(pod, verdict.Rejected(pod, r))
}

// wait keeps a pod for later, if that is the answer and its time is not over, and
// reports whether it did.
func (a *Agent) wait(pod *v1.Pod, r part.Rejection) bool {
	if !r.Waits() {
		return false
	}
	before := a.book.Get(pod.UID)
	waits := before.Why.Waits() && before.Why.Reason == r.Reason
	if waits && !r.Outside {
		r.RetryUntil = before.Why.RetryUntil
	}
	left := time.Until(r.RetryUntil)
	if left <= 0 {
		return false
	}
	a.book.Update(part.RefOf(pod), func(e *book.Entry) { e.Stage, e.Why = book.Waiting, &r })
	if !waits {
		a.log.Info("pod waits to be admitted", zap.String("pod", pod.Namespace+"/"+pod.Name),
			zap.String("reason", r.Reason), zap.String("message", r.Message), zap.Duration("for", left))
		a.events.Event(pod, v1.EventTypeNormal, "AdmissionWaits", r.Reason+": "+r.Message)
	}
	if !waits || before.Why.Message != r.Message {
		var previous *v1.PodStatus
		switch st, ok := a.statuses.Get(pod.UID); {
		case ok && verdict.WasRejected(&st):
			a.statuses.Forget(pod.UID) // else the pod would count as one that came to its end, and be begun without its reservation
		case ok:
			previous = &st
		}
		obs, _ := a.pleg.Get(pod.UID) // also what was seen before the last look failed
		a.statuses.Set(pod, verdict.Waiting(pod, r, previous, obs))
	}
	return true
}

package agent

import (
	"cmp"
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
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podworker"
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
	// Listed once for the whole decision, as the answers have to be about the same
	// others.
	others := a.activePods(pod.UID)
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
	if r := a.admit(pod, others); r != nil {
		return a.orPreempt(ctx, pod, others, a.orLater(pod, others, r)), true
	}
	return a.reserve(ctx, pod, others)
}

// admit asks what the node is, and every Admitter in turn; the first rejection
// stands. A part that panics rejects the pod: nobody knows what it would have said.
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

// activePods are the pods that hold or will hold resources of the node, except for
// one. A pod whose containers have ended holds none, also while its volumes are
// taken down. Those that are reserved for count, so that nobody is admitted to
// their room meanwhile.
func (a *Agent) activePods(except types.UID) []*v1.Pod {
	counted := a.book.At(book.Admitted, book.Reserving, book.Reserved)
	for uid, e := range a.book.At(book.Waiting) {
		if e.Why.Reason == reasonEnding {
			counted[uid] = e // its containers may run
		}
	}
	var active []*v1.Pod
	for _, p := range a.pods.Pods() {
		if _, counts := counted[p.UID]; !counts || p.UID == except || a.workers.KnownTerminated(p.UID) {
			continue
		}
		// A terminal phase says that the containers have ended, unless somebody
		// ends the pod and set the phase before that.
		if ph, ok := a.statuses.Phase(p.UID); ok && podmeta.IsTerminal(ph) && !a.workers.TerminationRequested(p.UID) {
			continue
		}
		// What it was allocated and not what it asks for: a resize may be pending.
		active = append(active, a.hooks.Allocated(a.guard, p))
	}
	return active
}

// leave are the pods that leave, but for one, each with the time by which it should
// have gone. A worker that syncs a pod nobody wants is about to end it.
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
// ended: what they hold is free soon. The kubelet rejects such a pod for good, and
// a controller makes another; a static pod would have nobody to make it again.
func (a *Agent) orLater(pod *v1.Pod, others []*v1.Pod, r *part.Rejection) *part.Rejection {
	if r == nil || r.Final || r.Waits() {
		return r
	}
	l := a.leave(pod.UID)
	// Pods that should have ended by now may never end: nobody waits for those.
	if !l.Until.After(time.Now()) {
		return r
	}
	if fits, wait := a.fitsWithout(pod, others, l); !fits {
		return cmp.Or(wait, r)
	}
	// In order, so that the same wait has the same message and is not published
	// anew.
	slices.Sort(l.Names)
	return &part.Rejection{
		Reason: r.Reason, RetryUntil: l.Until,
		Message: r.Message + "; it waits for the end of " + strings.Join(l.Names, ", "),
	}
}

// fitsWithout reports whether a pod would be admitted if some had gone. Parts are
// asked as well as the node: CPUs or devices may be what is missing. A part that would have
// it wait even then, for its turn or a plugin, is asked again when that is over: wait.
func (a *Agent) fitsWithout(pod *v1.Pod, others []*v1.Pod, l ending.Pods) (fits bool, wait *part.Rejection) {
	if r := a.admit(pod, l.Without(others)); r != nil {
		if r.Waits() {
			wait = r
		}
		return false, wait
	}
	for _, h := range a.hooks.Forecasters {
		if !hooks.Ask(a.guard, h, func(f part.Forecaster) bool { return f.FitsWithout(pod, l.UIDs) }) {
			return false, nil
		}
	}
	return true, nil
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

package agent

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podruntime"
	"github.com/nodewright/nodewright/podworker"
)

// resized returns the version of a pod that is to run: what it asks for, as far
// as it was granted. What it asks for anew it is granted now, or it waits.
func (a *Agent) resized(pod *v1.Pod) *v1.Pod {
	if before := a.grants.asked(pod); before != nil {
		a.metrics.countResize(before, pod)
	}
	has := a.grants.of(pod)
	if has == pod {
		a.grants.settle(pod.UID)
		return pod
	}
	if !a.pods.AllReady() || !a.grants.decidable(pod.UID) {
		a.grants.queue(pod) // until it is known who runs, and with what
		return has
	}
	reason, message := a.mayResize(has, pod)
	if reason != "" {
		if a.grants.wait(pod, reason, message) {
			a.events.Event(pod, v1.EventTypeWarning, "Resize"+reason, message)
			a.workers.Resync(pod.UID) // its status is to tell
		}
		return has
	}
	if err := a.grants.set(pod); err != nil {
		a.log.Error("resize waits: it cannot be written down", zap.String("pod", pod.Namespace+"/"+pod.Name), zap.Error(err))
		a.grants.wait(pod, v1.PodReasonDeferred, err.Error())
		return has
	}
	a.grants.progress(pod, nil)
	a.events.Event(pod, v1.EventTypeNormal, "ResizeStarted", "Pod resize started")
	return pod
}

// mayResize tells why a pod may not have what it asks for: not ever, as long as
// the node is as it is, or not now. No reason means that it may.
func (a *Agent) mayResize(has, asks *v1.Pod) (reason, message string) {
	if err := podruntime.CheckResize(has, asks); err != nil {
		return v1.PodReasonInfeasible, err.Error()
	}
	if err := a.placement.resizable(has, asks); err != nil {
		return v1.PodReasonInfeasible, err.Error()
	}
	if r := a.node.fit(asks, nil); r != nil {
		return v1.PodReasonInfeasible, r.Message
	}
	others := a.activePods(asks)
	for _, ad := range a.admit {
		if r := ad.Admit(asks, others); r != nil {
			return v1.PodReasonDeferred, r.Message
		}
	}
	return "", ""
}

// waiting is a resize that waits.
type waiting struct {
	asks, has *v1.Pod
	since     time.Time
}

// retryResizes grants what waits and fits by now: first what takes no more
// than it has, then by priority, then Guaranteed pods, then who waits longest.
func (a *Agent) retryResizes() {
	list := a.grants.waiting()
	slices.SortFunc(list, func(x, y waiting) int {
		return cmp.Or(
			first(takesNoMore(x), takesNoMore(y)),
			cmp.Compare(priority(y.asks), priority(x.asks)),
			first(podmeta.QOS(x.asks) == v1.PodQOSGuaranteed, podmeta.QOS(y.asks) == v1.PodQOSGuaranteed),
			x.since.Compare(y.since),
			cmp.Compare(x.asks.UID, y.asks.UID),
		)
	})
	for _, w := range list {
		pod, ok := a.pods.Pod(w.asks.UID)
		if !ok || a.workers.TerminationRequested(pod.UID) {
			continue
		}
		if a.resized(pod) == pod {
			a.workers.Update(podworker.Update{Type: podworker.ConfigUpdate, Pod: pod, Start: time.Now()})
		}
	}
}

// first puts what is true before what is not.
func first(x, y bool) int {
	switch {
	case x == y:
		return 0
	case x:
		return -1
	default:
		return 1
	}
}

func priority(pod *v1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

func takesNoMore(w waiting) bool {
	had := podmeta.Requests(w.has)
	for name, q := range podmeta.Requests(w.asks) {
		if q.Cmp(had[name]) > 0 {
			return false
		}
	}
	return true
}

// resizing tells how a pod's resize goes on, after a sync. It reports whether
// the status is to be told anew.
func (a *Agent) resizing(pod *v1.Pod, req podruntime.Request, res *podruntime.Result) (news bool) {
	if !res.Resizes {
		return a.finishResize(pod)
	}
	if err := resizeError(res); err != nil {
		if news = a.grants.progress(pod, err); news {
			a.events.Event(pod, v1.EventTypeWarning, podruntime.ReasonResize, err.Error())
		}
		return news
	}
	if a.runtime.NeedsResize(req) {
		return a.grants.progress(pod, nil)
	}
	a.finishResize(pod)
	return true
}

func (a *Agent) finishResize(pod *v1.Pod) bool {
	if !a.grants.finish(pod.UID) {
		return false
	}
	a.events.Event(pod, v1.EventTypeNormal, "ResizeCompleted", "Pod resize completed")
	return true
}

// resizeError is the error of a resize in a sync, if there was one.
func resizeError(res *podruntime.Result) error {
	for _, r := range res.Actions {
		var named interface{ Reason() string }
		if r.Err != nil && errors.As(r.Err, &named) && named.Reason() == podruntime.ReasonResize {
			return r.Err
		}
	}
	return nil
}

// sweepGrants drops the grants of pods that nothing knows.
func (a *Agent) sweepGrants(known map[types.UID]bool) {
	a.grants.forget(func(uid types.UID) bool { return known[uid] || a.wanted(uid) })
}

package agent

import (
	"cmp"
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/hooks"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/internal/seconds"
	"github.com/nodewright/nodewright/podruntime"
	"github.com/nodewright/nodewright/podstatus"
)

// status computes the pod's status from what the runtime shows. Its probes are
// told of that first.
func (a *Agent) status(ctx context.Context, pod *v1.Pod, obs *observed.Pod, final bool) v1.PodStatus {
	a.probes.Observe(pod, obs)
	in := podstatus.Input{
		Pod:      a.asShown(pod),
		Observed: a.runtime.WithMessages(pod, a.podDir(pod.UID), obs),
		Runtime:  a.facts.name.Get(ctx),
		Terminal: final,
		HostIPs:  a.cfg.Node.IPs,
		Now:      time.Now(),
	}
	if prev, ok := a.statuses.Get(pod.UID); ok {
		in.Previous = &prev
	}
	if fails := a.runtime.StartErrors(pod.UID); len(fails) > 0 {
		in.StartErrors = make(map[string]podstatus.StartError, len(fails))
		for name, f := range fails {
			in.StartErrors[name] = podstatus.StartError{Reason: f.Reason, Message: f.Message}
		}
	}
	a.applyProbes(pod.UID, &in)
	in.NeedsSandbox = podruntime.NeedsSandbox(pod, obs)
	in.RestartAll = podruntime.RestartsAll(pod, obs)
	for _, h := range a.hooks.Allocators {
		in.Resize = h.Hook.Conditions(pod.UID)
	}
	st := podstatus.Of(in)
	a.warnOfFamilies(pod, in.Previous, &st)
	hooks.Each(a.guard, a.hooks.Reporters, func(r part.Reporter) { r.Report(pod, &st) })
	return st
}

// asShown is a pod with the status that its source shows now: conditions of
// others, which readiness gates wait for, change without the spec.
func (a *Agent) asShown(pod *v1.Pod) *v1.Pod {
	shown, ok := a.pods.Pod(pod.UID)
	if !ok || shown == pod {
		return pod
	}
	now := *pod
	now.Status = shown.Status
	return &now
}

// publishAs is the object under which a pod's status goes to the sink.
func (a *Agent) publishAs(pod *v1.Pod) (as *v1.Pod, ok bool) {
	as, ok = pod, true
	for _, h := range a.hooks.Publishers {
		if err := a.guard.Call(h.Name, func() error { as, ok = h.Hook.PublishAs(pod); return nil }); err != nil {
			return nil, false
		}
	}
	return as, ok
}

// pastDeadline reports whether spec.activeDeadlineSeconds is over, and sets the
// pod's timer if it is still to come.
func (a *Agent) pastDeadline(pod *v1.Pod, status *v1.PodStatus) bool {
	limit := pod.Spec.ActiveDeadlineSeconds
	if limit == nil {
		return false
	}
	start := time.Now()
	if prev, ok := a.statuses.Get(pod.UID); ok && prev.StartTime != nil {
		start = prev.StartTime.Time
	} else if status.StartTime != nil {
		start = status.StartTime.Time
	}
	left := seconds.Of(*limit) - time.Since(start)
	if left <= 0 {
		a.book.ClearDeadline(pod.UID)
		return true
	}
	a.book.SetDeadline(part.RefOf(pod), left, func() { a.workers.Resync(pod.UID) })
	return false
}

// extended counts the extended resources that the parts offer.
func (a *Agent) extended() map[v1.ResourceName]part.Count {
	out := map[v1.ResourceName]part.Count{}
	hooks.Each(a.guard, a.hooks.Providers, func(p part.Provider) {
		for name, c := range p.Resources() {
			out[name] = c
		}
	})
	return out
}

// The version of a pod that runs is what its part has allocated to it; without
// such a part it is what the pod asks for.

func (a *Agent) recall(pod *v1.Pod, obs *observed.Pod) {
	hooks.Each(a.guard, a.hooks.Allocators, func(al part.Allocator) { al.Recall(pod, obs) })
}

func (a *Agent) learn(uid types.UID, obs *observed.Pod) {
	hooks.Each(a.guard, a.hooks.Allocators, func(al part.Allocator) { al.Learn(uid, obs) })
}

func (a *Agent) allocated(pod *v1.Pod) *v1.Pod {
	hooks.Each(a.guard, a.hooks.Allocators, func(al part.Allocator) { pod = al.Allocated(pod) })
	return pod
}

// reallocated takes note of a new version of a pod, and returns the one to run.
func (a *Agent) reallocated(pod *v1.Pod) *v1.Pod {
	hooks.Each(a.guard, a.hooks.Allocators, func(al part.Allocator) { pod = al.Changed(pod) })
	return pod
}

// synced tells the parts what a sync did, and reports whether the pod's status is
// to be computed anew.
func (a *Agent) synced(pod *v1.Pod, req podruntime.Request, res *podruntime.Result) (news bool) {
	hooks.Each(a.guard, a.hooks.Syncs, func(s part.SyncWatcher) {
		news = s.Synced(pod, res, func() bool { return a.runtime.NeedsResize(req) }) || news
	})
	return news
}

// checkResize says why a pod may not have what it asks for: not ever, as long as
// the node is as it is, or not now. No reason means that it may.
func (a *Agent) checkResize(has, asks *v1.Pod) (reason, message, detail string) {
	if err := podruntime.CheckResize(has, asks); err != nil {
		return v1.PodReasonInfeasible, err.Error(), "not_resizable"
	}
	if err := hooks.InTurn(a.guard, a.hooks.Resizes, func(c part.ResizeChecker) error { return c.CheckResize(has, asks) }); err != nil {
		var why *part.ResizeError
		if errors.As(err, &why) {
			detail = why.Detail
		}
		return v1.PodReasonInfeasible, err.Error(), cmp.Or(detail, "other")
	}
	if r := a.node.Fits(asks, nil); r != nil {
		return v1.PodReasonInfeasible, r.Message, "insufficient_node_allocatable"
	}
	if r := a.admit(asks, a.activePods(asks.UID)); r != nil {
		return v1.PodReasonDeferred, r.Message, ""
	}
	return "", "", ""
}

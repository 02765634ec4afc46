package agent

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/nodewright/nodewright/agent/internal/hooks"
	"github.com/nodewright/nodewright/agent/internal/probing"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/internal/seconds"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podstatus"
)

// status computes the pod's status from its observation, which is first passed to its probes. It is
// called in the pod's worker, and reads termination messages from disk. Parts are called last.
func (a *Agent) status(ctx context.Context, life podlife.Life, pod *v1.Pod, obs *observed.Pod, final bool) v1.PodStatus {
	a.probes.Observe(life, pod, obs)
	in := podstatus.Input{
		Pod:      a.asShown(pod),
		Observed: a.runtime.WithMessages(pod, a.podDir(pod.UID), obs),
		Runtime:  a.facts.name.Get(ctx),
		Terminal: final, StartErrors: a.runtime.StartErrors(life),
		HostIPs: a.cfg.Node.IPs,
		Now:     time.Now(),
	}
	if prev, ok := a.statuses.Get(pod.UID); ok {
		in.Previous = &prev
	}
	probing.Apply(a.probes, a.statuses, a.published, pod.UID, &in)
	// For the condition PodReadyToStartContainers (KEP-3085).
	in.SandboxNotReady = podlife.SandboxOf(pod, obs).Lack
	source, _ := podlife.RestartsAll(pod, obs)
	in.RestartAll = source != nil
	// An agent has at most one such part.
	for _, h := range a.hooks.Allocators {
		in.Resize = h.Hook.Conditions(pod.UID)
	}
	a.recordObserved(life, pod, obs, in.Resize)
	st := podstatus.Of(in)
	a.warnOfFamilies(pod, in.Previous, &st)
	hooks.Each(a.guard, a.hooks.Reporters, func(r part.Reporter) { r.Report(pod, &st) })
	return st
}

// asShown returns a copy of a pod with the current status in its source. Conditions of other
// writers, for which readiness gates wait, may change without a change of the spec. Pods are
// shared, so a copy is needed.
func (a *Agent) asShown(pod *v1.Pod) *v1.Pod {
	shown, ok := a.pods.Pod(pod.UID)
	if !ok || shown == pod {
		return pod
	}
	now := *pod
	now.Status = shown.Status
	return &now
}

// othersWrote reports whether another writer may have changed a part of the pod's status on which
// its worker has to act. Usually the status is the one that this node has published; a sync for
// each of these would be wasted.
func (a *Agent) othersWrote(pod *v1.Pod) bool {
	if hasClaims(pod) || len(pod.Status.ResourceClaimStatuses) > 0 {
		return true
	}
	// A failed sync may have lacked something that exists now.
	if w, ok := a.workers.State(pod.UID); !ok || w.LastError != "" {
		return true
	}
	st, ok := a.statuses.Get(pod.UID)
	return !ok || !equality.Semantic.DeepEqual(ofOthers(st.Conditions), ofOthers(pod.Status.Conditions))
}

// ofOthers returns, by type, the conditions that a writer other than the node may have
// set. This includes DisruptionTarget, which the taint eviction controller sets too.
func ofOthers(all []v1.PodCondition) map[v1.PodConditionType]v1.PodCondition {
	var out map[v1.PodConditionType]v1.PodCondition
	for _, c := range all {
		switch c.Type {
		case v1.PodScheduled, v1.PodReady, v1.PodInitialized, v1.ContainersReady, v1.PodReadyToStartContainers,
			v1.PodResizePending, v1.PodResizeInProgress, v1.AllContainersRestarting:
			continue
		}
		if out == nil {
			out = map[v1.PodConditionType]v1.PodCondition{}
		}
		out[c.Type] = c
	}
	return out
}

// pastDeadline reports whether spec.activeDeadlineSeconds has passed. If not, it sets a timer that
// wakes the pod's worker then.
func (a *Agent) pastDeadline(pod *v1.Pod, status *v1.PodStatus) bool {
	limit := pod.Spec.ActiveDeadlineSeconds
	if limit == nil {
		return false
	}
	start := time.Now()
	// The time counts from the first status, also over restarts of the agent.
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

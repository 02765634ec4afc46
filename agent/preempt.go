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
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podworker"
)

// Ending pods for one that is more important. Which ones is a part's decision;
// whether that would help is the agent's.

// orPreempt has a part end pods for one that does not fit, if it would be admitted
// without them: then it waits for their end. Those that are ending in their time
// count as gone; one that does not end in time is neither, so that others end in its
// place when the pod is looked at again.
func (a *Agent) orPreempt(ctx context.Context, pod *v1.Pod, others []*v1.Pod, r *part.Rejection) *part.Rejection {
	if r == nil || r.Final || r.Waits() || len(a.hooks.Preempters) == 0 {
		return r
	}
	now := time.Now()
	var gone ending.Pods
	busy := map[types.UID]bool{} // those that are ending cannot be ended once more
	for _, w := range a.workers.List() {
		if w.Pod == nil || w.Finished || w.UID == pod.UID || w.Kind == podworker.Sync && a.wanted(w.UID) {
			continue
		}
		busy[w.UID] = true
		if end := ending.At(w); end.After(now) {
			gone.Add(w.UID, w.Namespace+"/"+w.Name, end)
		}
	}
	staying := gone.Without(others)
	// Nothing is missing if the rejection has another reason, such as a taint:
	// ending pods would not help.
	missing := a.node.Missing(pod, staying)
	if len(missing) == 0 {
		return r
	}
	// Pods that are still being reserved for have no worker to end them.
	candidates := slices.DeleteFunc(slices.Clone(staying), func(o *v1.Pod) bool {
		return busy[o.UID] || a.book.Get(o.UID).Stage != book.Admitted
	})
	for _, h := range a.hooks.Preempters {
		victims := hooks.Ask(a.guard, h, func(p part.Preempter) []*v1.Pod { return p.Victims(pod, candidates, missing) })
		if len(victims) == 0 {
			continue
		}
		without := ending.Pods{UIDs: slices.Clone(gone.UIDs), Names: slices.Clone(gone.Names), Until: gone.Until}
		for _, v := range victims {
			without.Add(v.UID, v.Namespace+"/"+v.Name, now.Add(podlife.Grace(v, nil, podlife.Cause{Kind: podlife.Preempted})+ending.Margin))
		}
		// No pod ends for one that would not run even then.
		if fits, wait := a.fitsWithout(pod, others, without); wait != nil {
			return wait
		} else if !fits {
			continue
		}
		for _, v := range victims {
			a.preempt(ctx, h, pod, v, missing)
		}
		slices.Sort(without.Names)
		return &part.Rejection{
			Reason: r.Reason, RetryUntil: without.Until, Outside: true, // others may follow those that do not end
			Message: r.Message + "; it waits for the end of " + strings.Join(without.Names, ", "),
		}
	}
	return r
}

// preempt begins to end one pod for the sake of another. It does not wait: the one
// that waits is asked about again when its victims have gone.
func (a *Agent) preempt(ctx context.Context, h hooks.Of[part.Preempter], pod, victim *v1.Pod, missing v1.ResourceList) {
	var why podlife.Cause
	var ended func(error)
	if err := a.guard.Call(h.Name, func() error { why, ended = h.Hook.Preempt(pod, victim, missing); return nil }); err != nil {
		return
	}
	if wanted, ok := a.pods.Pod(victim.UID); ok {
		victim = wanted // as it is wanted, and not as it was allocated
	}
	a.log.Warn("pod preempted", zap.String("pod", victim.Namespace+"/"+victim.Name), zap.String("for", pod.Namespace+"/"+pod.Name))
	done := make(chan struct{})
	a.update(podworker.KillUpdate, victim, &podworker.KillOptions{Done: done, Why: why})
	a.background(ctx, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, podlife.Grace(victim, nil, why)+ending.Margin)
		defer cancel()
		err := a.awaitEnd(ctx, victim, done)
		if ended != nil {
			_ = a.guard.Call(h.Name, func() error { ended(err); return nil })
		}
		wake(a.run.readmit)
	})
}

// awaitEnd waits until a pod that was ended has no containers any more. ErrNotEnded
// means that the workers have ended before the pod did.
func (a *Agent) awaitEnd(ctx context.Context, pod *v1.Pod, done <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-done:
	}
	if a.workers.CouldHaveRunningContainers(pod.UID) {
		return ErrNotEnded
	}
	return nil
}

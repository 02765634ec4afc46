package agent

import (
	"context"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/internal/admit"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podworker"
)

// preempt starts to terminate the victims of pod. It does not wait: pod is decided on again when
// its victims have ended.
func (a *Agent) preempt(ctx context.Context, pod *v1.Pod, victims []admit.Victim) {
	for _, v := range victims {
		a.preemptOne(ctx, pod, v)
	}
}

func (a *Agent) preemptOne(ctx context.Context, pod *v1.Pod, v admit.Victim) {
	h, victim := v.By, v.Pod
	var why podlife.Cause
	var ended func(error)
	if err := a.guard.Call(h.Name, func() error { why, ended = h.Hook.Preempt(pod, victim, v.Missing); return nil }); err != nil {
		return
	}
	a.log.Warn("pod preempted", zap.String("pod", victim.Namespace+"/"+victim.Name), zap.String("for", pod.Namespace+"/"+pod.Name))
	done := make(chan struct{})
	a.update(podworker.KillUpdate, victim, &podworker.KillOptions{Done: done, Why: why})
	a.background(ctx, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, podlife.Grace(victim, nil, why)+admit.Margin)
		defer cancel()
		err := a.awaitEnd(ctx, victim, done)
		if ended != nil {
			_ = a.guard.Call(h.Name, func() error { ended(err); return nil })
		}
	})
}

// awaitEnd waits until a terminating pod has no running containers. ErrNotEnded means that the
// workers ended before the pod did.
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

package resources

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/dra"
	"github.com/nodewright/nodewright/podlife"
)

// Reasons of events about claims. The first is a reason of the kubelet, too.
const (
	reasonPrepareClaims   = "FailedPrepareDynamicResources"
	reasonUnprepareClaims = "FailedUnprepareDynamicResources"
	reasonAwaitsClaims    = "WaitingForDynamicResources"
)

func hasClaims(pod *v1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil
}

// Prepare implements part.Preparer. If the pod's claims are prepared already, it calls no driver.
func (p *Claims) Prepare(ctx context.Context, pod *v1.Pod, _ *observed.Pod) error {
	if !hasClaims(pod) {
		return nil
	}
	err := p.awaitReady(ctx)
	if err == nil {
		err = p.cfg.Manager.Prepare(ctx, pod)
	}
	if err == nil {
		return nil
	}
	switch notYet := (*dra.NotYetError)(nil); {
	case ctx.Err() != nil:
	case errors.As(err, &notYet):
		p.host.Event(pod, nil, v1.EventTypeNormal, reasonAwaitsClaims, err.Error())
	default:
		p.host.Event(pod, nil, v1.EventTypeWarning, reasonPrepareClaims, "Failed to prepare dynamic resources: "+err.Error())
	}
	return podlife.WithReason(reasonPrepareClaims, fmt.Errorf("prepare dynamic resources: %w", err))
}

// Stopped implements part.Stopper. Pods without claims in their spec do not wait for Restore. If
// such a pod has prepared claims nevertheless, Sweep unprepares them.
func (p *Claims) Stopped(ctx context.Context, pod part.Ref) error {
	if (pod.Pod == nil || !hasClaims(pod.Pod)) && !p.isReady() {
		return nil
	}
	err := p.awaitReady(ctx)
	if err == nil {
		err = p.cfg.Manager.Unprepare(ctx, pod.UID)
	}
	if err == nil {
		return nil
	}
	if ctx.Err() == nil && pod.Pod != nil {
		p.host.Event(pod.Pod, nil, v1.EventTypeWarning, reasonUnprepareClaims, "Failed to unprepare dynamic resources: "+err.Error())
	}
	return podlife.WithReason(reasonUnprepareClaims, fmt.Errorf("unprepare dynamic resources: %w", err))
}

// Sweep implements part.Sweeper. Claims of pods that are gone are unprepared in
// the background.
func (p *Claims) Sweep(_ context.Context, known func(types.UID) bool) error {
	p.cfg.Manager.Retain(known)
	return nil
}

// awaitReady waits until the claims of running pods are known.
func (p *Claims) awaitReady(ctx context.Context) error {
	select {
	case <-p.Ready():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *Claims) isReady() bool {
	select {
	case <-p.Ready():
		return true
	default:
		return false
	}
}

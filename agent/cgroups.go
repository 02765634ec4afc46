package agent

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podruntime"
)

// Cgroups keeps the cgroups that hold all containers of a pod. A
// *cgroups.Manager is one; the agent runs it if it is a [CgroupRunner].
type Cgroups interface {
	// Ensure makes the pod's cgroup, or mends it. It is idempotent.
	Ensure(ctx context.Context, pod *v1.Pod) error
	// CgroupParent is what a runtime is told of where the pod's containers are.
	CgroupParent(pod *v1.Pod) string
	// Destroy removes the pod's cgroup with all that is left in it.
	Destroy(ctx context.Context, uid types.UID) error
	// Sweep destroys the cgroups of pods that are not to be kept.
	Sweep(ctx context.Context, keep func(types.UID) bool) (gone []types.UID, err error)
	podruntime.PodCgroups
}

// CgroupRunner is a [Cgroups] with work of its own. Run blocks until ctx ends.
type CgroupRunner interface {
	Run(ctx context.Context) error
}

// ensureCgroup makes the pod's cgroup, if pods have any.
func (a *Agent) ensureCgroup(ctx context.Context, pod *v1.Pod) error {
	if a.cfg.Cgroups == nil {
		return nil
	}
	err := a.cfg.Cgroups.Ensure(ctx, pod)
	// A sync that was canceled has failed for no reason that the pod's owner should
	// see.
	if err != nil && ctx.Err() == nil {
		a.events.Event(pod, v1.EventTypeWarning, reasonPodCgroup, "unable to ensure pod container exists: "+err.Error())
	}
	return err
}

// reasonPodCgroup is the kubelet's word for a pod whose cgroup cannot be made.
const reasonPodCgroup = "FailedCreatePodContainer"

// destroyCgroup removes what was the pod's.
func (a *Agent) destroyCgroup(ctx context.Context, uid types.UID) error {
	if a.cfg.Cgroups == nil {
		return nil
	}
	return a.cfg.Cgroups.Destroy(ctx, uid)
}

package agent

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podruntime"
)

// Cgroups manages the cgroups of pods, which contain all containers of a pod. *cgroups.Manager
// implements it; the agent runs it if it is a [CgroupRunner].
type Cgroups interface {
	// Ensure creates the pod's cgroup, or corrects it. It is idempotent.
	Ensure(ctx context.Context, pod *v1.Pod) error
	// CgroupParent returns the cgroup parent of the pod's containers, for the runtime.
	CgroupParent(pod *v1.Pod) string
	// Destroy kills all processes in the pod's cgroup and removes it.
	Destroy(ctx context.Context, uid types.UID) error
	// Sweep destroys the cgroups of pods for which keep returns false.
	Sweep(ctx context.Context, keep func(types.UID) bool) (gone []types.UID, err error)
	podruntime.PodCgroups
}

// CgroupRunner is a [Cgroups] with background work. Run blocks until ctx ends.
type CgroupRunner interface {
	Run(ctx context.Context) error
}

// ensureCgroup creates the pod's cgroup, if the agent manages cgroups.
func (a *Agent) ensureCgroup(ctx context.Context, pod *v1.Pod) error {
	if a.cfg.Cgroups == nil {
		return nil
	}
	err := a.cfg.Cgroups.Ensure(ctx, pod)
	// A canceled sync is not a failure that the pod's owner should see.
	if err != nil && ctx.Err() == nil {
		a.events.Event(pod, v1.EventTypeWarning, reasonPodCgroup, "unable to ensure pod container exists: "+err.Error())
	}
	return err
}

// reasonPodCgroup is the kubelet's reason for a pod whose cgroup cannot be created.
const reasonPodCgroup = "FailedCreatePodContainer"

// destroyCgroup removes the pod's cgroup.
func (a *Agent) destroyCgroup(ctx context.Context, uid types.UID) error {
	if a.cfg.Cgroups == nil {
		return nil
	}
	return a.cfg.Cgroups.Destroy(ctx, uid)
}

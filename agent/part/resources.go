package part

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/podruntime"
)

// Count is the number of units of an extended resource; see [fit.Count].
type Count = fit.Count

// Provider is a Part that offers extended resources.
type Provider interface {
	// Resources returns the counts of the part's extended resources. It reads memory only. The
	// caller may change the map.
	Resources() map[v1.ResourceName]Count
}

// Allocator is a Part that decides about resizes of pods: the resources that are allocated
// to a pod may differ from those of its spec (KEP-1287). An agent has at most one. All
// methods are called on the loop, or while the loop waits for the call. They read memory
// only and never block.
type Allocator interface {
	// Recall is called for a pod that is new to this process of the agent, with its
	// observation.
	Recall(pod *v1.Pod, obs *observed.Pod)
	// Learn is called with the first observation of a pod that had none at Recall.
	Learn(uid types.UID, obs *observed.Pod)
	// Allocated returns a copy of pod that has its allocated resources. If they are those of its
	// spec, it returns pod itself.
	Allocated(pod *v1.Pod) *v1.Pod
	// Changed is called with a new version of a pod, and returns it with the resources
	// that are allocated now.
	Changed(pod *v1.Pod) *v1.Pod
	// Conditions returns PodResizePending and PodResizeInProgress, if they apply to the pod.
	Conditions(uid types.UID) []v1.PodCondition
}

// SyncWatcher is a Part that gets the result of each sync.
type SyncWatcher interface {
	// Synced is called in the pod's worker after each sync. It returns true if the
	// pod's status has to be computed again. needsResize reports whether containers
	// still have other resources than their specs.
	Synced(pod *v1.Pod, res *podruntime.Result, needsResize func() bool) (news bool)
}

// ResizeError is an error with a label value for kubelet_pod_infeasible_resizes_total. Detail
// must be one of a few values.
type ResizeError struct {
	Detail string
	Err    error
}

func (e *ResizeError) Error() string { return e.Err.Error() }
func (e *ResizeError) Unwrap() error { return e.Err }

// ResizeChecker is a Part that may refuse resizes of running pods.
type ResizeChecker interface {
	// CheckResize returns an error if a pod with the resources of current can never be resized to
	// those of wanted. It is called on the loop and must not block. The error may be a
	// [ResizeError].
	CheckResize(current, wanted *v1.Pod) error
}

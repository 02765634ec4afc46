package part

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/podruntime"
)

// Count describes how many there are of an extended resource; see [fit.Count].
type Count = fit.Count

// Provider is a Part that offers extended resources.
type Provider interface {
	// Resources counts what is offered, from memory. The map is the caller's.
	Resources() map[v1.ResourceName]Count
}

// Allocator is a Part that decides which version of a pod runs: the resources
// that it has been allocated may differ from those that it asks for (KEP-1287).
// An agent has at most one. All methods are called on the loop or with it
// waiting, read memory only, and never block.
type Allocator interface {
	// Recall takes note of a pod that is new to this process of the agent, with
	// what runs of it.
	Recall(pod *v1.Pod, obs *observed.Pod)
	// Learn says what runs of a pod that was recalled before that was known.
	Learn(uid types.UID, obs *observed.Pod)
	// Allocated returns pod with the resources that it has been allocated:
	// itself, if these are what it asks for.
	Allocated(pod *v1.Pod) *v1.Pod
	// Changed takes a new version of a pod, and returns the one that is to run.
	Changed(pod *v1.Pod) *v1.Pod
	// Conditions are those of a pod's resizes.
	Conditions(uid types.UID) []v1.PodCondition
}

// SyncWatcher is a Part that wants to know what a sync did.
type SyncWatcher interface {
	// Synced is called in the pod's worker after each sync. It reports whether
	// the pod's status is to be computed anew. needsResize reports whether
	// containers have other resources than their specs still.
	Synced(pod *v1.Pod, res *podruntime.Result, needsResize func() bool) (news bool)
}

// ResizeError is an error with a word that kubelet_pod_infeasible_resizes_total
// counts it by, one of a few.
type ResizeError struct {
	Detail string
	Err    error
}

func (e *ResizeError) Error() string { return e.Err.Error() }
func (e *ResizeError) Unwrap() error { return e.Err }

// ResizeChecker is a Part that may refuse to change the resources of a pod that
// runs.
type ResizeChecker interface {
	// CheckResize returns nil, or why a pod that has one version's resources can
	// never have the other's. It is called on the loop and must not block. The
	// error may be a [ResizeError].
	CheckResize(has, asks *v1.Pod) error
}

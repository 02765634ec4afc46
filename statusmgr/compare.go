package statusmgr

import (
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The comparison that decides whether a status is published. It runs at each sync
// of each pod, usually to find nothing, so that it compares by hand what reflection
// would take many times as long for.

// ours are the conditions that the node writes, alone or with others. All
// other conditions have writers that publish them themselves.
var ours = [...]v1.PodConditionType{
	v1.PodScheduled, v1.PodReady, v1.PodInitialized, v1.ContainersReady, v1.PodReadyToStartContainers,
	v1.PodResizePending, v1.PodResizeInProgress, v1.AllContainersRestarting, v1.DisruptionTarget,
}

// isOurs reports whether the node writes conditions of that type.
func isOurs(typ v1.PodConditionType) bool { return slices.Contains(ours[:], typ) }

// sameStatus reports whether publishing b after a would change nothing. The
// times and generations of conditions do not count, nor do the fields about
// resource claims, which others write.
func sameStatus(a, b *v1.PodStatus) bool {
	if !sameConditions(a.Conditions, b.Conditions) {
		return false
	}
	if !coversAllFields {
		return sameStatusByReflection(a, b)
	}
	return a.ObservedGeneration == b.ObservedGeneration && a.Phase == b.Phase && a.Message == b.Message && a.Reason == b.Reason &&
		a.NominatedNodeName == b.NominatedNodeName && a.HostIP == b.HostIP && slices.Equal(a.HostIPs, b.HostIPs) &&
		a.PodIP == b.PodIP && slices.Equal(a.PodIPs, b.PodIPs) && a.StartTime.Equal(b.StartTime) &&
		a.QOSClass == b.QOSClass && a.Resize == b.Resize &&
		sameContainers(a.InitContainerStatuses, b.InitContainerStatuses) &&
		sameContainers(a.ContainerStatuses, b.ContainerStatuses) &&
		sameContainers(a.EphemeralContainerStatuses, b.EphemeralContainerStatuses) &&
		sameList(a.AllocatedResources, b.AllocatedResources) && sameResources(a.Resources, b.Resources) &&
		(len(a.VolumeHealth)+len(b.VolumeHealth) == 0 || equality.Semantic.DeepEqual(a.VolumeHealth, b.VolumeHealth))
}

// coversAllFields reports whether the API that this was built with has the fields
// that sameStatus compares, and no more. The go.mod of a program that imports this
// package may select a later API; a field that is not compared would never be
// published on its own.
var coversAllFields = reflect.TypeFor[v1.PodStatus]().NumField() == 22 &&
	reflect.TypeFor[v1.ContainerStatus]().NumField() == 15 &&
	reflect.TypeFor[v1.ContainerState]().NumField() == 3 &&
	reflect.TypeFor[v1.ContainerStateWaiting]().NumField() == 2 &&
	reflect.TypeFor[v1.ContainerStateRunning]().NumField() == 1 &&
	reflect.TypeFor[v1.ContainerStateTerminated]().NumField() == 7 &&
	reflect.TypeFor[v1.ResourceRequirements]().NumField() == 3 &&
	reflect.TypeFor[v1.VolumeMountStatus]().NumField() == 5

// sameStatusByReflection compares every field, except for conditions and claims.
func sameStatusByReflection(a, b *v1.PodStatus) bool {
	x, y := *a, *b
	for _, st := range []*v1.PodStatus{&x, &y} {
		st.Conditions, st.ResourceClaimStatuses, st.ExtendedResourceClaimStatus = nil, nil, nil
		st.NodeAllocatableResourceClaimStatuses = nil
	}
	return equality.Semantic.DeepEqual(&x, &y)
}

// sameConditions compares the node's conditions by status, reason and message, in
// any order.
func sameConditions(a, b []v1.PodCondition) bool {
	own := 0
	for i := range a {
		if !isOurs(a[i].Type) {
			continue
		}
		own++
		// Usually they have the same index.
		y := (*v1.PodCondition)(nil)
		if i < len(b) && b[i].Type == a[i].Type {
			y = &b[i]
		} else {
			y = find(b, a[i].Type)
		}
		if y == nil || a[i].Status != y.Status || a[i].Reason != y.Reason || a[i].Message != y.Message {
			return false
		}
	}
	for i := range b {
		if isOurs(b[i].Type) {
			own--
		}
	}
	return own == 0
}

// sameContainers compares by place: normalize has sorted both lists.
func sameContainers(a, b []v1.ContainerStatus) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !sameContainerStatus(&a[i], &b[i]) {
			return false
		}
	}
	return true
}

func sameContainerStatus(a, b *v1.ContainerStatus) bool {
	return a.Name == b.Name && a.Ready == b.Ready && a.RestartCount == b.RestartCount && a.Image == b.Image && a.ImageID == b.ImageID &&
		a.ContainerID == b.ContainerID && samePointer(a.Started, b.Started) && samePointer(a.StopSignal, b.StopSignal) &&
		sameState(&a.State, &b.State) && sameState(&a.LastTerminationState, &b.LastTerminationState) &&
		sameList(a.AllocatedResources, b.AllocatedResources) && sameResources(a.Resources, b.Resources) &&
		sameMounts(a.VolumeMounts, b.VolumeMounts) &&
		(a.User == b.User || equality.Semantic.DeepEqual(a.User, b.User)) &&
		(len(a.AllocatedResourcesStatus)+len(b.AllocatedResourcesStatus) == 0 || equality.Semantic.DeepEqual(a.AllocatedResourcesStatus, b.AllocatedResourcesStatus))
}

// samePointer compares what is pointed to; nil equals nil alone.
func samePointer[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// sameState compares by values, since each status that is computed has pointers of
// its own.
func sameState(a, b *v1.ContainerState) bool {
	if !samePointer(a.Waiting, b.Waiting) {
		return false
	}
	if x, y := a.Running, b.Running; x != y && (x == nil || y == nil || !sameTime(x.StartedAt, y.StartedAt)) {
		return false
	}
	x, y := a.Terminated, b.Terminated
	return x == y || x != nil && y != nil && x.ExitCode == y.ExitCode && x.Signal == y.Signal && x.Reason == y.Reason &&
		x.Message == y.Message && x.ContainerID == y.ContainerID &&
		sameTime(x.StartedAt, y.StartedAt) && sameTime(x.FinishedAt, y.FinishedAt)
}

func sameTime(a, b metav1.Time) bool { return a.Time.Equal(b.Time) }

// sameList compares quantities and not their spelling: "1" and "1000m" are the
// same.
func sameList(a, b v1.ResourceList) bool {
	if len(a) != len(b) {
		return false
	}
	// Looking up the usual resources is faster than to iterate over the map.
	left := len(a)
	for _, name := range [...]v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		if left == 0 {
			return true
		}
		x, ok := a[name]
		if y, too := b[name]; ok != too || ok && x.Cmp(y) != 0 {
			return false
		}
		if ok {
			left--
		}
	}
	if left == 0 {
		return true
	}
	for name, x := range a {
		if y, ok := b[name]; !ok || x.Cmp(y) != 0 {
			return false
		}
	}
	return true
}

func sameResources(a, b *v1.ResourceRequirements) bool {
	return a == b || a != nil && b != nil && sameList(a.Limits, b.Limits) && sameList(a.Requests, b.Requests) && slices.Equal(a.Claims, b.Claims)
}

func sameMounts(a, b []v1.VolumeMountStatus) bool {
	return slices.EqualFunc(a, b, func(x, y v1.VolumeMountStatus) bool {
		return x.Name == y.Name && x.MountPath == y.MountPath && x.ReadOnly == y.ReadOnly && samePointer(x.RecursiveReadOnly, y.RecursiveReadOnly) &&
			(x.VolumeStatus == y.VolumeStatus || equality.Semantic.DeepEqual(x.VolumeStatus, y.VolumeStatus))
	})
}

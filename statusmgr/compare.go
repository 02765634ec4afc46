package statusmgr

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// The comparison that decides whether a status is published.

// ours has the types of the conditions that the node writes, alone or with other writers. Other
// writers publish all other conditions.
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
	x, y := *a, *b
	for _, st := range []*v1.PodStatus{&x, &y} {
		st.Conditions, st.ResourceClaimStatuses, st.ExtendedResourceClaimStatus = nil, nil, nil
		st.NodeAllocatableResourceClaimStatuses = nil
	}
	return equality.Semantic.DeepEqual(&x, &y)
}

// sameConditions reports whether the node's conditions are equal in status, reason and message, in
// any order.
func sameConditions(a, b []v1.PodCondition) bool {
	own := 0
	for i := range a {
		if !isOurs(a[i].Type) {
			continue
		}
		own++
		y := find(b, a[i].Type)
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

package status

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Same reports whether two statuses are equal, ignoring the order of conditions,
// their heartbeats, the form of quantities, and the difference between nil and
// empty lists. Neither is changed. Two nils are equal. A caller that writes only
// changed statuses saves an API server most of the writes.
func Same(a, b *v1.NodeStatus) bool {
	if a == nil || b == nil {
		return a == b
	}
	left, right := *a, *b
	left.Conditions, right.Conditions = withoutHeartbeats(a.Conditions), withoutHeartbeats(b.Conditions)
	return equality.Semantic.DeepEqual(&left, &right)
}

// withoutHeartbeats returns a copy of conditions, sorted by type, with zero heartbeat
// times. Transition times are kept.
func withoutHeartbeats(all []v1.NodeCondition) []v1.NodeCondition {
	out := slices.Clone(all)
	slices.SortStableFunc(out, func(a, b v1.NodeCondition) int { return cmp.Compare(a.Type, b.Type) })
	for i := range out {
		out[i].LastHeartbeatTime = metav1.Time{}
	}
	return out
}

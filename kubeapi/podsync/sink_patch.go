package podsync

import (
	"encoding/json"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/strategicpatch"
	"github.com/nodewright/nodewright/podmeta"
)

// theirs are the fields that only others write. They belong to the resource claim
// controller and to the scheduler; a patch without them leaves them alone.
var theirs = map[string]bool{
	"resourceClaimStatuses": true, "extendedResourceClaimStatus": true, "nodeAllocatableResourceClaimStatuses": true,
}

// ours are the conditions that a node writes; those of others are never
// touched.
var ours = map[v1.PodConditionType]bool{
	v1.PodScheduled: true, v1.PodReady: true, v1.PodInitialized: true, v1.ContainersReady: true,
	v1.PodResizeInProgress: true, v1.PodResizePending: true, v1.PodReadyToStartContainers: true,
	v1.AllContainersRestarting: true, v1.DisruptionTarget: true,
}

// forward makes of a status to publish one that does not go back from what the
// API shows.
func forward(api, next v1.PodStatus) v1.PodStatus {
	// Containers that are found running after an outage must not bring a pod back whose
	// replacement runs elsewhere.
	if podmeta.IsTerminal(api.Phase) && next.Phase != api.Phase {
		next.Phase, next.Reason, next.Message = api.Phase, api.Reason, api.Message
	}
	// An observation of an old version of the spec must not hide that of a newer one.
	next.ObservedGeneration = max(next.ObservedGeneration, api.ObservedGeneration)
	// The time at which a node first saw the pod is set once.
	if api.StartTime != nil && !api.StartTime.IsZero() {
		next.StartTime = api.StartTime
	}
	if next.QOSClass == "" {
		next.QOSClass = api.QOSClass
	}
	return next
}

// patchOf is a strategic merge patch that makes api into next, for a pod of
// that UID. It is nil if there is no difference. What it has, it has as a whole:
// api may not be the last word.
func patchOf(uid types.UID, api, next v1.PodStatus) ([]byte, error) {
	was, err := strategicpatch.Object(api)
	if err != nil {
		return nil, err
	}
	is, err := strategicpatch.Object(next)
	if err != nil {
		return nil, err
	}
	// Conditions are merged by their type (patchMergeKey), so that those of others are
	// not in the patch at all.
	conditions := strategicpatch.ByKey("type", own(was["conditions"]), own(is["conditions"]), strategicpatch.Overwrite)
	for _, m := range []map[string]any{was, is} {
		maps.DeleteFunc(m, func(name string, _ any) bool { return theirs[name] || name == "conditions" })
	}
	status := strategicpatch.Changes(was, is, whole)
	if len(conditions) > 0 {
		status["conditions"] = conditions
	}
	if len(status) == 0 {
		return nil, nil
	}
	// The UID makes the server refuse the patch for another pod of that name.
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid}, "status": status})
}

// own are the conditions of a list that the node writes.
func own(list any) []any {
	return slices.DeleteFunc(strategicpatch.List(list), func(c any) bool {
		m, _ := c.(map[string]any)
		kind, _ := m["type"].(string)
		return !ours[v1.PodConditionType(kind)]
	})
}

// whole is the patch by which a field becomes now, whatever it was. An API server makes
// nothing of a map that is to take the place of none.
func whole(name string, was, now any) any {
	switch now := now.(type) {
	case map[string]any:
		if was == nil {
			return now
		}
		return strategicpatch.Replace(now)
	case []any:
		if name == "podIPs" || name == "hostIPs" { // the others are never merged
			return append([]any{strategicpatch.Replace(nil)}, now...)
		}
	}
	return now
}

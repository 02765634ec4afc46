package statussink

import (
	"encoding/json"
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podmeta"
)

// theirs are the fields that only others write.
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
	if podmeta.IsTerminal(api.Phase) && next.Phase != api.Phase {
		next.Phase, next.Reason, next.Message = api.Phase, api.Reason, api.Message
	}
	next.ObservedGeneration = max(next.ObservedGeneration, api.ObservedGeneration)
	if api.StartTime != nil && !api.StartTime.IsZero() {
		next.StartTime = api.StartTime
	}
	if next.QOSClass == "" {
		next.QOSClass = api.QOSClass
	}
	return next
}

// patchOf is a strategic merge patch that makes api into next, for a pod of
// that UID. It is nil if there is no difference.
func patchOf(uid types.UID, api, next v1.PodStatus) ([]byte, error) {
	was, err := fieldsOf(api)
	if err != nil {
		return nil, err
	}
	is, err := fieldsOf(next)
	if err != nil {
		return nil, err
	}
	status := map[string]any{}
	for name := range was {
		if is[name] == nil && !theirs[name] && name != "conditions" {
			status[name] = nil
		}
	}
	for name, b := range is {
		if !theirs[name] && name != "conditions" && !reflect.DeepEqual(was[name], b) {
			status[name] = whole(name, b)
		}
	}
	if c := conditionsPatch(list(was["conditions"]), list(is["conditions"])); len(c) > 0 {
		status["conditions"] = c
	}
	if len(status) == 0 {
		return nil, nil
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid}, "status": status})
}

// fieldsOf are the fields of a status as JSON has them.
func fieldsOf(st v1.PodStatus) (map[string]any, error) {
	b, err := json.Marshal(st)
	if err != nil {
		return nil, err
	}
	var out map[string]any
	return out, json.Unmarshal(b, &out)
}

func list(v any) []any { l, _ := v.([]any); return l }

// replaces says that what is beside or after it is no addition.
var replaces = map[string]any{"$patch": "replace"}

// whole is the patch by which a field becomes v, whatever it was.
func whole(name string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		v["$patch"] = "replace"
		return v
	case []any:
		if name == "podIPs" || name == "hostIPs" { // the others are never merged
			return append([]any{replaces}, v...)
		}
	}
	return v
}

// conditionsPatch changes the conditions that differ and takes away those that
// are no more, of the node's own alone.
func conditionsPatch(was, is []any) []any {
	var out []any
	for _, b := range is {
		b := b.(map[string]any)
		if !ours[v1.PodConditionType(b["type"].(string))] {
			continue
		}
		a := condition(was, b["type"])
		if reflect.DeepEqual(a, b) {
			continue
		}
		for name := range a {
			if _, ok := b[name]; !ok {
				b[name] = nil
			}
		}
		out = append(out, b)
	}
	for _, a := range was {
		t := a.(map[string]any)["type"]
		if ours[v1.PodConditionType(t.(string))] && condition(is, t) == nil {
			out = append(out, map[string]any{"$patch": "delete", "type": t})
		}
	}
	return out
}

func condition(of []any, t any) map[string]any {
	i := slices.IndexFunc(of, func(c any) bool { return c.(map[string]any)["type"] == t })
	if i < 0 {
		return nil
	}
	return of[i].(map[string]any)
}

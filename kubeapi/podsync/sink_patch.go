package podsync

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/strategicpatch"
	"github.com/nodewright/nodewright/podmeta"
)

// theirs lists the fields of the resource claim controller and the scheduler. Patches never contain
// them.
var theirs = map[string]bool{
	"resourceClaimStatuses": true, "extendedResourceClaimStatus": true, "nodeAllocatableResourceClaimStatuses": true,
}

// ours lists the conditions that a node writes. Patches never contain others.
var ours = map[v1.PodConditionType]bool{
	v1.PodScheduled: true, v1.PodReady: true, v1.PodInitialized: true, v1.ContainersReady: true,
	v1.PodResizeInProgress: true, v1.PodResizePending: true, v1.PodReadyToStartContainers: true,
	v1.AllContainersRestarting: true, v1.DisruptionTarget: true,
}

// forward returns the status to publish: next, adjusted so that a terminal phase and a larger
// observed generation of the API's status are kept.
func forward(api, next v1.PodStatus) v1.PodStatus {
	// The replacement of a terminal pod may run elsewhere. If containers are found running after an
	// outage, the phase stays terminal.
	if podmeta.IsTerminal(api.Phase) {
		if anyRuns(next) {
			return api // next is published when its containers have ended
		}
		// After a failure of its disk, a node may not know that the pod has run, and reject it. The
		// rejection must not replace the results of the containers.
		if !anyContainer(next) && anyContainer(api) {
			return api
		}
		if next.Phase != api.Phase {
			next.Phase, next.Reason, next.Message = api.Phase, api.Reason, api.Message
		}
	}
	// An observation of an old version of the spec must not replace an observation of a newer
	// version.
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

// anyRuns reports whether a status shows a container that runs.
func anyRuns(st v1.PodStatus) bool {
	runs := func(c v1.ContainerStatus) bool { return c.State.Running != nil }
	return slices.ContainsFunc(st.InitContainerStatuses, runs) || slices.ContainsFunc(st.ContainerStatuses, runs)
}

// anyContainer reports whether a status has container statuses. A rejected pod has none.
func anyContainer(st v1.PodStatus) bool {
	return len(st.InitContainerStatuses) > 0 || len(st.ContainerStatuses) > 0
}

// statusField is a field of v1.PodStatus that a patch may have: its index in the struct and
// its JSON name.
type statusField struct {
	index int
	name  string
}

// statusFields are the fields of a status that are compared as one value. Conditions
// are merged instead. Fields that other writers set are ignored.
var statusFields = func() (out []statusField) {
	t := reflect.TypeFor[v1.PodStatus]()
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if !theirs[name] && name != "conditions" {
			out = append(out, statusField{i, name})
		}
	}
	return out
}()

// patchOf returns a strategic merge patch that turns the status api into next, for a pod of that
// UID. It returns nil if there is no difference. The patch has the complete values of changed
// fields, since api may be outdated.
func patchOf(uid types.UID, api, next v1.PodStatus) ([]byte, error) {
	status := map[string]any{}
	before, after := reflect.ValueOf(&api).Elem(), reflect.ValueOf(&next).Elem()
	for _, f := range statusFields {
		was, err := fieldJSON(before.Field(f.index))
		if err != nil {
			return nil, err
		}
		is, err := fieldJSON(after.Field(f.index))
		if err != nil {
			return nil, err
		}
		if bytes.Equal(was, is) {
			continue
		}
		if status[f.name], err = whole(f.name, was, is); err != nil {
			return nil, err
		}
	}
	// Conditions are merged by type (patchMergeKey), so that conditions of other
	// writers are not in the patch.
	conditions, err := conditionsPatch(api.Conditions, next.Conditions)
	if err != nil {
		return nil, err
	}
	if len(conditions) > 0 {
		status["conditions"] = conditions
	}
	if len(status) == 0 {
		return nil, nil
	}
	// The UID makes the server refuse the patch for another pod of that name.
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid}, "status": status})
}

// fieldJSON returns a field of a status as JSON. It returns nil if the field is empty, since all
// fields of a status have omitempty.
func fieldJSON(v reflect.Value) ([]byte, error) {
	switch v.Kind() {
	case reflect.Slice, reflect.Map:
		if v.Len() == 0 {
			return nil, nil
		}
	default:
		if v.IsZero() {
			return nil, nil
		}
	}
	// A pointer, since a value in an interface would be copied.
	b, err := json.Marshal(v.Addr().Interface())
	if string(b) == "null" {
		return nil, err
	}
	return b, err
}

// whole returns the patch that replaces a field. before and after are its old and new values in
// JSON; an empty value is nil. An API server ignores a directive to replace a missing map.
func whole(name string, before, after []byte) (any, error) {
	switch {
	case after == nil:
		return nil, nil
	case after[0] == '{' && before != nil:
		var object map[string]any
		err := json.Unmarshal(after, &object)
		return strategicpatch.Replace(object), err
	case name == "podIPs" || name == "hostIPs": // the others are never merged
		list := []any{strategicpatch.Replace(nil)}
		var items []json.RawMessage
		err := json.Unmarshal(after, &items)
		for _, item := range items {
			list = append(list, item)
		}
		return list, err
	}
	return json.RawMessage(after), nil
}

// conditionsPatch returns the patch that sets the node's conditions to the conditions in next. It
// has each changed condition with all fields.
func conditionsPatch(api, next []v1.PodCondition) (out []any, err error) {
	before, after := byType(api), byType(next)
	for i := range next {
		c := &next[i]
		if !ours[c.Type] {
			continue
		}
		was, err := conditionJSON(before[c.Type])
		if err != nil {
			return nil, err
		}
		is, err := conditionJSON(c)
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(was, is) {
			out = append(out, withoutRest(before[c.Type], c, is))
		}
	}
	for i := range api {
		if t := api[i].Type; ours[t] && after[t] == nil {
			out = append(out, map[string]any{"$patch": "delete", "type": t})
		}
	}
	return out, nil
}

// withoutRest returns the new condition, after, as JSON. content is its encoding. A field that the
// old condition, before, has and the new one lacks is null in the result, so that the server's
// condition becomes equal to the new one.
func withoutRest(before, after *v1.PodCondition, content []byte) json.RawMessage {
	if before == nil {
		return content
	}
	content = bytes.TrimSuffix(content, []byte("}"))
	for _, field := range [...]struct {
		name string
		gone bool
	}{
		{"observedGeneration", before.ObservedGeneration != 0 && after.ObservedGeneration == 0},
		{"reason", before.Reason != "" && after.Reason == ""},
		{"message", before.Message != "" && after.Message == ""},
	} {
		if field.gone {
			content = append(content, `,"`+field.name+`":null`...)
		}
	}
	return append(content, '}')
}

// byType returns the node's conditions in a list, by type.
func byType(list []v1.PodCondition) map[v1.PodConditionType]*v1.PodCondition {
	out := make(map[v1.PodConditionType]*v1.PodCondition, len(list))
	for i := range list {
		if ours[list[i].Type] {
			out[list[i].Type] = &list[i]
		}
	}
	return out
}

// conditionJSON returns a condition as JSON. It returns nil if c is nil.
func conditionJSON(c *v1.PodCondition) ([]byte, error) {
	if c == nil {
		return nil, nil
	}
	return json.Marshal(c)
}

// Package strategicpatch computes the strategic merge patch between two objects in JSON form. A
// server that applies the patch knows which lists are merged, and by which key
// (https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch).
//
// The package does not know the types of the API: its callers choose the lists with a key
// ([ByKey]) and the values to replace ([Replace]). Patches may share memory with the objects.
package strategicpatch

import (
	"encoding/json"
	"reflect"
)

// directive is the field of a patch that tells whether to delete or to replace an object.
const directive = "$patch"

// Object converts v to a JSON object. It fails if v is not encoded as an object.
func Object(v any) (map[string]any, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var out map[string]any
	return out, json.Unmarshal(raw, &out)
}

// List returns v if it is a list. Otherwise it returns nil.
func List(v any) []any { l, _ := v.([]any); return l }

// Changes compares two versions of an object field by field. For each new or changed field, the
// result contains the value that change returns. For each removed field it contains null.
func Changes(previous, current map[string]any, change func(name string, before, now any) any) map[string]any {
	out := map[string]any{}
	for name, now := range current {
		if before := previous[name]; !reflect.DeepEqual(before, now) {
			out[name] = change(name, before, now)
		}
	}
	for name := range previous {
		if _, has := current[name]; !has {
			out[name] = nil
		}
	}
	return out
}

// Diff returns the patch from the object previous to the object current. Nested objects are
// compared field by field, removed fields are null, and other values are replaced entirely.
func Diff(previous, current map[string]any) map[string]any {
	return Changes(previous, current, func(_ string, before, now any) any {
		a, ok := before.(map[string]any)
		b, too := now.(map[string]any)
		if ok && too {
			return Diff(a, b)
		}
		return now
	})
}

// Overwrite returns a patch with all fields of current, including unchanged ones, and null for each
// removed field of previous. So the patched object has the values of current, even if the object on
// the server was changed after previous was read.
func Overwrite(previous, current map[string]any) map[string]any {
	out := make(map[string]any, len(previous))
	for name := range previous {
		out[name] = nil
	}
	for name, now := range current {
		out[name] = now
	}
	return out
}

// ByKey returns a patch that turns the list previous into the list current. The items of both lists
// are objects that the server merges by the field key. For each new or changed object, the patch
// contains the result of change and the key; for each removed object, it contains a deletion. Other
// items of the server's list stay.
func ByKey(key string, previous, current []any, change func(previous, current map[string]any) map[string]any) []any {
	before, after := byKey(key, previous), byKey(key, current)
	var out []any
	for _, item := range current {
		now, _ := item.(map[string]any)
		if old := before[now[key]]; !reflect.DeepEqual(old, now) {
			d := change(old, now)
			d[key] = now[key]
			out = append(out, d)
		}
	}
	for _, item := range previous {
		gone, _ := item.(map[string]any)
		if _, stays := after[gone[key]]; !stays {
			out = append(out, map[string]any{directive: "delete", key: gone[key]})
		}
	}
	return out
}

func byKey(key string, list []any) map[any]map[string]any {
	out := make(map[any]map[string]any, len(list))
	for _, item := range list {
		if m, ok := item.(map[string]any); ok {
			out[m[key]] = m
		}
	}
	return out
}

// Replace returns a patch that replaces the server's object by object. Replace(nil) as an
// item of a list makes the patch replace the whole list; the position of the item does not
// matter.
func Replace(object map[string]any) map[string]any {
	out := map[string]any{directive: "replace"}
	for name, v := range object {
		out[name] = v
	}
	return out
}

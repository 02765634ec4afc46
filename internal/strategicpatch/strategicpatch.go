// Package strategicpatch makes strategic merge patches of two objects as JSON
// has them: the kind of patch whose server knows which lists are merged, and by
// which key
// (https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch).
//
// It knows no types. Whoever makes a patch says which lists have a key
// ([ByKey]), and which values take the place of what is there ([Replace]); the
// library that reads that from struct tags weighs eight modules. Patches may
// share parts with the objects they are made of.
package strategicpatch

import (
	"encoding/json"
	"reflect"
)

// directive is the field that says what is meant by what is beside it.
const directive = "$patch"

// Object is v, which JSON makes an object of, by the names of its fields.
func Object(v any) (map[string]any, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var out map[string]any
	return out, json.Unmarshal(raw, &out)
}

// List is a list in an object; nil if v is none.
func List(v any) []any { l, _ := v.([]any); return l }

// Changes are the fields of is that differ from those of was, as change makes
// them of the two, and null for those that are gone.
func Changes(was, is map[string]any, change func(name string, before, now any) any) map[string]any {
	out := map[string]any{}
	for name, now := range is {
		if before := was[name]; !reflect.DeepEqual(before, now) {
			out[name] = change(name, before, now)
		}
	}
	for name := range was {
		if _, has := is[name]; !has {
			out[name] = nil
		}
	}
	return out
}

// Diff turns was into is: objects field by field, with null for those that are
// gone, and all else as a whole.
func Diff(was, is map[string]any) map[string]any {
	return Changes(was, is, func(_ string, before, now any) any {
		a, ok := before.(map[string]any)
		b, too := now.(map[string]any)
		if ok && too {
			return Diff(a, b)
		}
		return now
	})
}

// Overwrite has all fields of is, the same ones too, and null for those that
// are gone: whatever an object has become since was, it becomes is.
func Overwrite(was, is map[string]any) map[string]any {
	out := make(map[string]any, len(was))
	for name := range was {
		out[name] = nil
	}
	for name, now := range is {
		out[name] = now
	}
	return out
}

// ByKey turns was into is, lists of objects that are merged by a key: those that
// differ, as change makes them, with their key, and those that are gone, to be
// deleted. Items that are in neither list stay.
func ByKey(key string, was, is []any, change func(was, is map[string]any) map[string]any) []any {
	before, after := byKey(key, was), byKey(key, is)
	var out []any
	for _, item := range is {
		now, _ := item.(map[string]any)
		if old := before[now[key]]; !reflect.DeepEqual(old, now) {
			d := change(old, now)
			d[key] = now[key]
			out = append(out, d)
		}
	}
	for _, item := range was {
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

// Replace makes of an object one that takes the place of what is there. In a
// list, Replace(nil) says so of the list; where it stands there does not matter.
func Replace(object map[string]any) map[string]any {
	out := map[string]any{directive: "replace"}
	for name, v := range object {
		out[name] = v
	}
	return out
}

package patch

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/nodewright/nodewright/internal/schema"
)

// Directives of strategic merge patches: keys that are not fields of an object.
const (
	directive       = "$patch" // its value is replace, delete or merge
	retainKeys      = "$retainKeys"
	elementOrder    = "$setElementOrder/"
	deleteFromPlain = "$deleteFromPrimitiveList/"
)

// Strategic applies a strategic merge patch to an object of a Go type, whose struct
// tags say how its lists are merged.
func Strategic(object, patch map[string]any, as reflect.Type) (map[string]any, error) {
	return mergeObject(object, patch, as, "")
}

func malformed(path, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrMalformed, strings.TrimPrefix(path, "."), fmt.Sprintf(format, args...))
}

// fieldOf returns the description of a struct's field, or of a map's key; its Type is nil if it
// is unknown.
func fieldOf(t reflect.Type, name string) schema.Field {
	if t == nil {
		return schema.Field{}
	}
	t = schema.Bare(t)
	if t.Kind() == reflect.Map {
		return schema.Field{Type: t.Elem()}
	}
	if f := schema.Of(t).Field(name); f != nil {
		return *f
	}
	return schema.Field{}
}

// elementOf returns the type of a list's items; nil if it is unknown.
func elementOf(t reflect.Type) reflect.Type {
	if t == nil || schema.Bare(t).Kind() != reflect.Slice {
		return nil
	}
	return schema.Bare(t).Elem()
}

func mergeObject(object, patch map[string]any, t reflect.Type, path string) (map[string]any, error) {
	switch d := patch[directive]; d {
	case nil, "merge":
	case "replace":
		object = nil
	case "delete":
		return map[string]any{}, nil
	default:
		return nil, malformed(path, "%s is %v; want replace, delete or merge", directive, d)
	}
	out := maps.Clone(object)
	if out == nil {
		out = map[string]any{}
	}
	if err := retain(out, patch, path); err != nil {
		return nil, err
	}
	orders := map[string][]any{}
	for name, v := range patch {
		if list, ok := strings.CutPrefix(name, elementOrder); ok {
			order, ok := v.([]any)
			if !ok {
				return nil, malformed(path, "%s is no list", name)
			}
			orders[list] = order
			continue
		}
		if list, ok := strings.CutPrefix(name, deleteFromPlain); ok {
			gone, ok := v.([]any)
			if !ok {
				return nil, malformed(path, "%s is no list", name)
			}
			out[list] = without(out[list], gone)
		}
	}
	for name, v := range patch {
		if strings.HasPrefix(name, "$") {
			continue
		}
		if v == nil || directs(v) && !isObject(out[name]) { // API servers ignore a directive about a missing object
			delete(out, name)
			continue
		}
		merged, err := mergeValue(out[name], v, fieldOf(t, name), path+"."+name)
		if err != nil {
			return nil, err
		}
		out[name] = merged
	}
	for list, order := range orders {
		before, _ := object[list].([]any)
		now, _ := out[list].([]any)
		out[list] = ordered(now, before, order, fieldOf(t, list).MergeKey)
		if len(now) == 0 {
			delete(out, list)
		}
	}
	return out, nil
}

// directs reports whether a patch of an object has a directive about the whole object.
func directs(patch any) bool {
	p, _ := patch.(map[string]any)
	return p[directive] != nil
}

func isObject(v any) bool { _, ok := v.(map[string]any); return ok }

// retain removes the keys that a patch of a union does not contain.
func retain(object, patch map[string]any, path string) error {
	v, ok := patch[retainKeys]
	if !ok {
		return nil
	}
	names, ok := v.([]any)
	if !ok {
		return malformed(path, "%s is no list", retainKeys)
	}
	maps.DeleteFunc(object, func(k string, _ any) bool { return !contains(names, k) })
	return nil
}

func mergeValue(have, v any, f schema.Field, path string) (any, error) {
	switch v := v.(type) {
	case map[string]any:
		object, _ := have.(map[string]any)
		return mergeObject(object, v, f.Type, path)
	case []any:
		list, _ := have.([]any)
		switch {
		case !f.Merges:
			return v, nil
		case f.MergeKey == "":
			return union(list, v), nil
		default:
			return mergeList(list, v, f, path)
		}
	default:
		return v, nil
	}
}

// mergeList merges two lists of objects by their merge key.
func mergeList(have, patch []any, f schema.Field, path string) ([]any, error) {
	t := elementOf(f.Type)
	at := map[any]int{} // index, by key
	for i, x := range have {
		if item, ok := x.(map[string]any); ok && plain(item[f.MergeKey]) {
			if _, twice := at[item[f.MergeKey]]; !twice {
				at[item[f.MergeKey]] = i
			}
		}
	}
	out := slices.Clone(have)
	gone := map[int]bool{}
	for _, x := range patch {
		item, ok := x.(map[string]any)
		if !ok {
			return nil, malformed(path, "has an item that is no object")
		}
		if item[directive] == "replace" {
			return replaced(patch), nil // the directive may be in any item
		}
		key := item[f.MergeKey]
		if key == nil || !plain(key) {
			return nil, malformed(path, "has an item without its key %s", f.MergeKey)
		}
		i, there := at[key]
		if item[directive] == "delete" {
			if there {
				gone[i] = true
			}
			continue
		}
		var old map[string]any
		if there {
			old, _ = out[i].(map[string]any)
		}
		merged, err := mergeObject(old, item, t, path)
		if err != nil {
			return nil, err
		}
		if there {
			out[i] = merged
		} else {
			at[key] = len(out)
			out = append(out, merged)
		}
	}
	kept := make([]any, 0, len(out))
	for i, x := range out {
		if !gone[i] {
			kept = append(kept, x)
		}
	}
	return kept, nil
}

// replaced returns the list of a patch that replaces the existing list.
func replaced(patch []any) []any {
	return slices.DeleteFunc(slices.Clone(patch), func(x any) bool {
		item, ok := x.(map[string]any)
		return ok && item[directive] == "replace"
	})
}

// plain reports whether a value can be a key of a map.
func plain(v any) bool {
	switch v.(type) {
	case string, int64, float64, bool:
		return true
	default:
		return false
	}
}

func contains(list []any, v any) bool {
	return plain(v) && slices.ContainsFunc(list, func(x any) bool { return plain(x) && x == v })
}

func keySet(list []any, key string) map[any]int {
	out := map[any]int{}
	for i, x := range list {
		if k := keyOf(x, key); plain(k) {
			if _, twice := out[k]; !twice {
				out[k] = i
			}
		}
	}
	return out
}

// keyOf returns the key of an item, or the item itself in a list of primitive values.
func keyOf(x any, key string) any {
	if item, ok := x.(map[string]any); ok {
		return item[key]
	}
	return x
}

func union(have, more []any) []any {
	out, in := slices.Clone(have), keySet(have, "")
	for _, x := range more {
		if _, ok := in[hashable(x)]; plain(x) && !ok {
			in[x] = len(out)
			out = append(out, x)
		}
	}
	return out
}

func without(list any, gone []any) []any {
	have, _ := list.([]any)
	drop := keySet(gone, "")
	out := []any{}
	for _, x := range have {
		if plain(x) {
			if _, ok := drop[x]; ok {
				continue
			}
		}
		out = append(out, x)
	}
	return out
}

// ordered sorts a merged list: the items of the patch get the patch's order, and each other
// item stays before the items that it preceded.
func ordered(list, before, order []any, key string) []any {
	place, was := keySet(order, key), keySet(before, key)
	var named, others []any
	for _, x := range list {
		if _, ok := place[hashable(keyOf(x, key))]; ok {
			named = append(named, x)
		} else {
			others = append(others, x)
		}
	}
	slices.SortStableFunc(named, func(a, b any) int { return place[keyOf(a, key)] - place[keyOf(b, key)] })
	position := func(x any) int {
		if i, ok := was[hashable(keyOf(x, key))]; ok {
			return i
		}
		return -1
	}
	out := make([]any, 0, len(list))
	for len(named) > 0 && len(others) > 0 {
		if position(others[0]) < position(named[0]) {
			out, others = append(out, others[0]), others[1:]
		} else {
			out, named = append(out, named[0]), named[1:]
		}
	}
	return slices.Concat(out, named, others)
}

// hashable returns a value that can be used as a map key.
func hashable(v any) any {
	if plain(v) {
		return v
	}
	return nil
}

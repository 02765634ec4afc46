package kubeapitest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// mergeFields applies a strategic merge patch to a struct: lists whose types have
// patchStrategy merge are merged by their patchMergeKey. It supports the directives
// $patch (delete, replace) and $deleteFromPrimitiveList, and ignores
// $setElementOrder and $retainKeys: the order of such lists has no meaning. Only
// the fields in the patch are converted to JSON: nodes and pods have large
// statuses, of which a patch changes little.
func mergeFields(v reflect.Value, p map[string]any) error {
	for name, patch := range p {
		if list, ok := strings.CutPrefix(name, "$deleteFromPrimitiveList/"); ok {
			if err := mergeField(v, list, name, patch); err != nil {
				return err
			}
			continue
		}
		f := valueNamed(v, name)
		sub, isObject := patch.(map[string]any)
		switch _, whole := sub["$patch"]; {
		case !f.IsValid(): // a directive without effect, or a field that is not known
		case isObject && !whole && f.Kind() == reflect.Struct && !reflect.PointerTo(f.Type()).Implements(unmarshaler):
			if err := mergeFields(f, sub); err != nil {
				return err
			}
		default:
			if err := mergeField(v, name, name, patch); err != nil {
				return err
			}
		}
	}
	return nil
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// mergeField applies the patch of one key to a field of a struct.
func mergeField(v reflect.Value, name, key string, patch any) error {
	f := valueNamed(v, name)
	if !f.IsValid() {
		return nil
	}
	doc := map[string]any{}
	if !f.IsZero() {
		text, err := json.Marshal(f.Interface())
		if err != nil {
			return err
		}
		var field any
		if err := json.Unmarshal(text, &field); err != nil {
			return err
		}
		doc[name] = field
	}
	doc, err := mergeStruct(doc, map[string]any{key: patch}, v.Type())
	if err != nil {
		return err
	}
	f.SetZero()
	merged, there := doc[name]
	if !there {
		return nil
	}
	text, err := json.Marshal(merged)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, f.Addr().Interface())
}

// valueNamed returns the field of a struct with a JSON name, or the zero Value if there is none.
func valueNamed(v reflect.Value, name string) reflect.Value {
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		json, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case json == name:
			return v.Field(i)
		case json == "" && f.Anonymous && f.Type.Kind() == reflect.Struct:
			if in := valueNamed(v.Field(i), name); in.IsValid() {
				return in
			}
		}
	}
	return reflect.Value{}
}

// mergeStruct merges the patch p into the object d. Its Go type t is a struct or a map.
func mergeStruct(d, p map[string]any, t reflect.Type) (map[string]any, error) {
	if p["$patch"] == "replace" {
		delete(p, "$patch")
		return p, nil
	}
	if d == nil {
		d = map[string]any{}
	}
	for name, v := range p {
		if list, ok := strings.CutPrefix(name, "$deleteFromPrimitiveList/"); ok {
			have, _ := d[list].([]any)
			gone, _ := v.([]any)
			d[list] = slices.DeleteFunc(have, func(x any) bool { return slices.Contains(gone, x) })
			continue
		}
		if strings.HasPrefix(name, "$") {
			continue
		}
		if v == nil {
			delete(d, name)
			continue
		}
		f, tag := fieldNamed(t, name)
		switch v := v.(type) {
		case map[string]any:
			sub, there := d[name].(map[string]any)
			if !there && v["$patch"] == "replace" {
				continue // the API server's own merge makes nothing of it
			}
			merged, err := mergeStruct(sub, v, f)
			if err != nil {
				return nil, err
			}
			d[name] = merged
		case []any:
			have, _ := d[name].([]any)
			if !slices.Contains(strings.Split(tag.Get("patchStrategy"), ","), "merge") {
				d[name] = v
				continue
			}
			merged, err := mergeList(have, v, tag.Get("patchMergeKey"), f)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			d[name] = merged
		default:
			d[name] = v
		}
	}
	return d, nil
}

func mergeList(have, patch []any, key string, t reflect.Type) ([]any, error) {
	if key == "" {
		for _, v := range patch {
			if !slices.Contains(have, v) {
				have = append(have, v)
			}
		}
		return have, nil
	}
	t = bare(t)
	if t != nil {
		t = t.Elem()
	}
	if replaces := func(v any) bool { m, _ := v.(map[string]any); return m["$patch"] == "replace" }; slices.ContainsFunc(patch, replaces) {
		return slices.DeleteFunc(slices.Clone(patch), replaces), nil // wherever the directive stands
	}
	for _, v := range patch {
		item, ok := v.(map[string]any)
		if !ok || item[key] == nil {
			return nil, fmt.Errorf("map: %v does not contain declared merge key: %s", v, key)
		}
		at := slices.IndexFunc(have, func(x any) bool { return x.(map[string]any)[key] == item[key] })
		switch {
		case item["$patch"] == "delete":
			if at >= 0 {
				have = slices.Delete(have, at, at+1)
			}
		case at < 0:
			have = append(have, item)
		default:
			merged, err := mergeStruct(have[at].(map[string]any), item, t)
			if err != nil {
				return nil, err
			}
			have[at] = merged
		}
	}
	return have, nil
}

// bare returns the type that a pointer type points to.
func bare(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// fieldNamed finds a field by its name in JSON.
func fieldNamed(t reflect.Type, name string) (reflect.Type, reflect.StructTag) {
	t = bare(t)
	if t == nil {
		return nil, ""
	}
	if t.Kind() == reflect.Map {
		return t.Elem(), ""
	}
	if t.Kind() != reflect.Struct {
		return nil, ""
	}
	for i := range t.NumField() {
		f := t.Field(i)
		json, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if json == name {
			return f.Type, f.Tag
		}
		if json == "" && f.Anonymous {
			if ft, tag := fieldNamed(f.Type, name); ft != nil {
				return ft, tag
			}
		}
	}
	return nil, ""
}

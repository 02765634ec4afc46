package node

import (
	"encoding/json"
	"fmt"
	"reflect"

	v1 "k8s.io/api/core/v1"
)

// Patch is the strategic merge patch that turns old into the node that has
// want's labels, annotations and status; "{}" if there is no difference. The
// rest of want does not count: nothing else of a node is the agent's to change.
//
// Conditions are merged by type, so that those of others stay. Addresses would
// be too, by their type, which cannot express two of one type; they go in as a
// whole, with a directive to replace the list
// (https://github.com/kubernetes/kubernetes/issues/44788).
func Patch(old, want *v1.Node) ([]byte, error) {
	before, err := generic(old)
	if err != nil {
		return nil, err
	}
	after, err := generic(want)
	if err != nil {
		return nil, err
	}
	patch := map[string]any{}
	if meta := diff(part(before, "metadata", "labels", "annotations"), part(after, "metadata", "labels", "annotations")); len(meta) > 0 {
		patch["metadata"] = meta
	}
	was, is := child(before, "status"), child(after, "status")
	wasConditions, isConditions := was["conditions"], is["conditions"]
	wasAddresses, isAddresses := was["addresses"], is["addresses"]
	for _, m := range []map[string]any{was, is} {
		delete(m, "conditions")
		delete(m, "addresses")
	}
	status := diff(was, is)
	if list := diffConditions(wasConditions, isConditions); len(list) > 0 {
		status["conditions"] = list
	}
	if !reflect.DeepEqual(wasAddresses, isAddresses) {
		list, _ := isAddresses.([]any)
		if wasAddresses != nil {
			list = append(list, map[string]any{"$patch": "replace"})
		}
		status["addresses"] = list
	}
	if len(status) > 0 {
		patch["status"] = status
	}
	out, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("node patch: %w", err)
	}
	return out, nil
}

// generic is a node as JSON has it.
func generic(n *v1.Node) (map[string]any, error) {
	raw, err := json.Marshal(n)
	if err != nil {
		return nil, fmt.Errorf("node patch: %w", err)
	}
	var out map[string]any
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, fmt.Errorf("node patch: %w", err)
	}
	return out, nil
}

func child(m map[string]any, name string) map[string]any {
	c, _ := m[name].(map[string]any)
	if c == nil {
		c = map[string]any{}
	}
	return c
}

// part has some of the fields of a child.
func part(m map[string]any, name string, fields ...string) map[string]any {
	all, out := child(m, name), map[string]any{}
	for _, f := range fields {
		if v, ok := all[f]; ok {
			out[f] = v
		}
	}
	return out
}

// diff is what makes is of was: maps field by field, with null for what is to
// go, and all else as a whole.
func diff(was, is map[string]any) map[string]any {
	out := map[string]any{}
	for name, now := range is {
		before, had := was[name]
		if reflect.DeepEqual(before, now) {
			continue
		}
		a, aIs := before.(map[string]any)
		b, bIs := now.(map[string]any)
		switch {
		case had && aIs && bIs:
			out[name] = diff(a, b)
		case had && before == nil && now == nil:
		default:
			out[name] = now
		}
	}
	for name := range was {
		if _, has := is[name]; !has {
			out[name] = nil
		}
	}
	return out
}

// diffConditions are those that differ, each with its type; those that are to
// go say so.
func diffConditions(was, is any) []any {
	before, after := byType(was), byType(is)
	var out []any
	list, _ := is.([]any)
	for _, c := range list {
		now, _ := c.(map[string]any)
		d := diff(before[now["type"]], now)
		if len(d) > 0 {
			d["type"] = now["type"]
			out = append(out, d)
		}
	}
	list, _ = was.([]any)
	for _, c := range list {
		gone, _ := c.(map[string]any)
		if _, stays := after[gone["type"]]; !stays {
			out = append(out, map[string]any{"$patch": "delete", "type": gone["type"]})
		}
	}
	return out
}

func byType(list any) map[any]map[string]any {
	out := map[any]map[string]any{}
	items, _ := list.([]any)
	for _, c := range items {
		if m, ok := c.(map[string]any); ok {
			out[m["type"]] = m
		}
	}
	return out
}

package fields

import (
	"encoding/json"
	"maps"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	kjson "sigs.k8s.io/json"
)

// maxAnnotations is how large the annotations of an object may be, in bytes; the API
// server's.
const maxAnnotations = 256 << 10

// annotationsOf returns the annotations of an object; nil if there are none.
func annotationsOf(o map[string]any) map[string]any {
	meta, _ := o["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	return annotations
}

// lastApplied returns the fields of live that are still as kubectl apply has written them
// down in an annotation. Without one, or if it is of another version or cannot be read,
// there are none. was is live by its schema.
func (m *Manager) lastApplied(live map[string]any, was *typed.TypedValue) *fieldpath.Set {
	none := fieldpath.NewSet()
	text, _ := annotationsOf(live)[v1.LastAppliedConfigAnnotation].(string)
	var o map[string]any
	if text == "" || kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &o) != nil || o["apiVersion"] != m.cfg.APIVersion {
		return none
	}
	config, err := m.typed(o)
	if err != nil {
		return none
	}
	set, err := config.ToFieldSet()
	if err != nil {
		return none
	}
	diff, err := config.Compare(was)
	if err != nil {
		return none
	}
	return set.Difference(diff.Modified).Difference(diff.Added).Difference(diff.Removed)
}

// setLastApplied brings the annotation of what kubectl has applied up to date, where there
// is one. It goes if it makes the annotations larger than they may be.
func setLastApplied(o, applied map[string]any) {
	annotations := annotationsOf(o)
	if text, _ := annotations[v1.LastAppliedConfigAnnotation].(string); text == "" {
		return
	}
	if own := annotationsOf(applied); own[v1.LastAppliedConfigAnnotation] != nil {
		applied = maps.Clone(applied)
		meta := maps.Clone(applied["metadata"].(map[string]any))
		own = maps.Clone(own)
		delete(own, v1.LastAppliedConfigAnnotation)
		meta["annotations"], applied["metadata"] = own, meta
	}
	text, err := json.Marshal(applied)
	if err != nil { // it was read from JSON
		return
	}
	annotations[v1.LastAppliedConfigAnnotation] = string(text) + "\n"
	size := 0
	for name, v := range annotations {
		s, _ := v.(string)
		size += len(name) + len(s)
	}
	if size > maxAnnotations {
		delete(annotations, v1.LastAppliedConfigAnnotation)
	}
}

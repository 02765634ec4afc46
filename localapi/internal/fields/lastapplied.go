package fields

import (
	"encoding/json"
	"maps"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	kjson "sigs.k8s.io/json"
)

// maxAnnotations limits the size of an object's annotations, in bytes, as in the API server.
const maxAnnotations = 256 << 10

// annotationsOf returns the annotations of an object; nil if there are none.
func annotationsOf(o map[string]any) map[string]any {
	meta, _ := o["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	return annotations
}

// lastApplied returns the fields of live that still have the values that kubectl apply recorded
// in an annotation. It returns none if there is no annotation, or if the annotation has another
// version or cannot be decoded. typedLive has the same fields as live, with their schema.
func (m *Manager) lastApplied(live map[string]any, typedLive *typed.TypedValue) *fieldpath.Set {
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
	diff, err := config.Compare(typedLive)
	if err != nil {
		return none
	}
	return set.Difference(diff.Modified).Difference(diff.Added).Difference(diff.Removed)
}

// setLastApplied updates the annotation of kubectl apply, if there is one. It removes the
// annotation if the annotations would become too large.
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
	if err != nil { // it came from JSON
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

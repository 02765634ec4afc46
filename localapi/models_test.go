package localapi

import (
	"reflect"
	"testing"

	"github.com/nodewright/nodewright/internal/schema"
)

// Models have the names that Kubernetes' types give them, and its descriptions.
func TestModels(t *testing.T) {
	var kinds []schema.Kind
	seen := map[string]bool{}
	for _, k := range newKinds() {
		kinds = append(kinds, schema.Kind{GroupVersionKind: k.GroupVersionKind, Type: reflect.TypeOf(k.empty)})
		checkNames(t, seen, reflect.TypeOf(k.empty))
		checkNames(t, seen, reflect.TypeOf(k.list))
	}
	pod, _ := schema.Components(kinds...)["io.k8s.api.core.v1.PodSpec"].(map[string]any)
	if text, _ := pod["description"].(string); text != "PodSpec is a description of a pod." {
		t.Errorf("PodSpec is described as %q", text)
	}
	containers, _ := pod["properties"].(map[string]any)["containers"].(map[string]any)
	if text, _ := containers["description"].(string); text == "" {
		t.Error("the field containers of PodSpec has no description")
	}
}

// checkNames compares the names of a type's model, and of all that is in it.
func checkNames(t *testing.T, seen map[string]bool, of reflect.Type) {
	of = schema.Bare(of)
	if _, ok := schema.ScalarOf(of); ok || schema.Anything(of) {
		return
	}
	switch of.Kind() {
	case reflect.Map, reflect.Slice:
		checkNames(t, seen, of.Elem())
		return
	}
	s := schema.Of(of)
	if seen[s.Name] {
		return
	}
	seen[s.Name] = true
	if n, ok := reflect.New(of).Interface().(interface{ OpenAPIModelName() string }); ok && n.OpenAPIModelName() != s.Name {
		t.Errorf("model %s, want %s", s.Name, n.OpenAPIModelName())
	}
	for i := range s.Fields {
		checkNames(t, seen, s.Fields[i].Type)
	}
}

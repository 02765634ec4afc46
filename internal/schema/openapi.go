package schema

import (
	"reflect"
	"slices"

	apischema "k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is a kind of the API with its Go type.
type Kind struct {
	apischema.GroupVersionKind

	Type reflect.Type
}

// Ref returns a document's reference to a model.
func Ref(model string) string { return "#/components/schemas/" + model }

// Components returns the OpenAPI v3 schemas of kinds and of all types that they contain. The keys
// are the names of the schemas. Types that Kubernetes describes have these descriptions.
func Components(kinds ...Kind) map[string]any {
	c := components{}
	for _, k := range kinds {
		c.ref(k.Type)
		model := c[Of(k.Type).Name].(map[string]any)
		model["x-kubernetes-group-version-kind"] = []any{map[string]any{"group": k.Group, "version": k.Version, "kind": k.Kind}}
	}
	return c
}

// components are the models by name.
type components map[string]any

func (c components) ref(t reflect.Type) map[string]any {
	t = Bare(t)
	if s, ok := ScalarOf(t); ok {
		return scalarSchema(s)
	}
	if Anything(t) {
		return map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	}
	switch t.Kind() {
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": c.ref(t.Elem())}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": c.ref(t.Elem())}
	default:
		s := Of(t)
		c.add(s, descriptions(t))
		return map[string]any{"$ref": Ref(s.Name)}
	}
}

func scalarSchema(s Scalar) map[string]any {
	switch s.Format {
	case "int-or-string":
		return map[string]any{"format": s.Format, "oneOf": []any{map[string]any{"type": "integer"}, map[string]any{"type": "string"}}}
	case "quantity":
		return map[string]any{"oneOf": []any{map[string]any{"type": "string"}, map[string]any{"type": "number"}}}
	}
	out := map[string]any{"type": s.Type}
	if s.Format != "" {
		out["format"] = s.Format
	}
	return out
}

// descriptions returns Kubernetes' descriptions of a type's fields, by their JSON names; "" is
// the type itself. It returns nil for other types.
func descriptions(t reflect.Type) map[string]string {
	if d, ok := reflect.Zero(t).Interface().(interface{ SwaggerDoc() map[string]string }); ok {
		return d.SwaggerDoc()
	}
	return nil
}

func (c components) add(s *Struct, texts map[string]string) {
	if _, ok := c[s.Name]; ok {
		return
	}
	properties, required := map[string]any{}, []any{}
	model := map[string]any{"type": "object", "properties": properties}
	c[s.Name] = model
	if s.Atomic {
		model["x-kubernetes-map-type"] = "atomic"
	}
	if text := texts[""]; text != "" {
		model["description"] = text
	}
	for i := range s.Fields {
		f := &s.Fields[i]
		properties[f.Name] = c.property(f, texts[f.Name])
		if f.Required && Bare(f.Type) == f.Type && f.Name != "metadata" && f.Name != "status" && f.Name != "spec" {
			required = append(required, f.Name)
		}
	}
	if len(required) > 0 {
		model["required"] = required
	}
}

func (c components) property(f *Field, text string) map[string]any {
	p := c.ref(f.Type)
	if _, ok := p["$ref"]; ok && (text != "" || f.RetainKeys) { // a reference must not have siblings
		p = map[string]any{"allOf": []any{p}, "default": map[string]any{}}
	}
	if text != "" {
		p["description"] = text
	}
	switch {
	case f.Merges && f.RetainKeys:
		p["x-kubernetes-patch-strategy"] = "merge,retainKeys"
	case f.Merges:
		p["x-kubernetes-patch-strategy"] = "merge"
	case f.RetainKeys:
		p["x-kubernetes-patch-strategy"] = "retainKeys"
	}
	if f.MergeKey != "" {
		p["x-kubernetes-patch-merge-key"] = f.MergeKey
	}
	if f.List != "" {
		p["x-kubernetes-list-type"] = string(f.List)
		if f.List == Map {
			p["x-kubernetes-list-map-keys"] = slices.Clone(f.Keys)
		}
	}
	if f.Relation == Whole {
		p["x-kubernetes-map-type"] = "atomic"
	}
	return p
}

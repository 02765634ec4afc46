package schema_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/nodewright/nodewright/internal/schema"
	"github.com/nodewright/nodewright/internal/testprogram"
)

var kinds = []any{
	v1.Pod{}, v1.ConfigMap{}, v1.Secret{}, v1.PersistentVolume{}, v1.PersistentVolumeClaim{}, v1.Event{}, v1.Node{}, v1.Namespace{},
	coordinationv1.Lease{}, resourcev1.ResourceClaim{},
}

// clientGo is the schema that client-go's own apply configurations are made with.
func clientGo(t *testing.T) map[string]smd.TypeDef {
	t.Helper()
	// Of a package, which is downloaded if need be; of a module it may not be there.
	dir := testprogram.Go(t, ".", "list", "-find", "-f", "{{.Dir}}", "k8s.io/client-go/applyconfigurations/internal")
	code, err := os.ReadFile(filepath.Join(strings.TrimSpace(dir), "internal.go"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(code), "typed.YAMLObject(`")
	text, _, _ = strings.Cut(text, "`)")
	p, err := typed.NewParser(typed.YAMLObject(text))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]smd.TypeDef{}
	for _, d := range p.Schema.Types {
		out[d.Name] = d
	}
	return out
}

// What is derived from the struct tags, and from the table of marks, is how
// Kubernetes merges these kinds.
func TestMergeAsKubernetes(t *testing.T) {
	want := clientGo(t)
	for _, def := range schema.Merge(kinds...).Schema.Types {
		w, ok := want[def.Name]
		if !ok || def.Map == nil || w.Map == nil {
			continue // quantities and the like are no structs there either
		}
		if def.Map.ElementRelationship != w.Map.ElementRelationship {
			t.Errorf("%s is %q, want %q", def.Name, def.Map.ElementRelationship, w.Map.ElementRelationship)
		}
		have := map[string]smd.StructField{}
		for _, f := range def.Map.Fields {
			have[f.Name] = f
		}
		for _, f := range w.Map.Fields {
			h, ok := have[f.Name]
			if !ok {
				t.Errorf("%s.%s is missing", def.Name, f.Name)
				continue
			}
			if a, b := shape(h.Type), shape(f.Type); a != b {
				t.Errorf("%s.%s is %s, want %s", def.Name, f.Name, a, b)
			}
		}
		for _, f := range w.Map.Fields {
			if keyed(want, def.Name, f.Name) && f.Default != nil && !isZero(f.Default) && !reflect.DeepEqual(have[f.Name].Default, f.Default) {
				t.Errorf("%s.%s is %v by default, want %v", def.Name, f.Name, have[f.Name].Default, f.Default)
			}
		}
	}
}

func isZero(v any) bool { return reflect.ValueOf(v).IsZero() }

// keyed reports whether a field is a key of some list.
func keyed(all map[string]smd.TypeDef, model, field string) bool {
	for _, d := range all {
		if d.Map == nil {
			continue
		}
		for _, f := range d.Map.Fields {
			if l := f.Type.Inlined.List; l != nil && l.ElementType.NamedType != nil && *l.ElementType.NamedType == model {
				for _, k := range l.Keys {
					if k == field {
						return true
					}
				}
			}
		}
	}
	return false
}

func shape(r smd.TypeRef) string {
	switch a := r.Inlined; {
	case r.NamedType != nil:
		rel := ""
		if r.ElementRelationship != nil {
			rel = string(*r.ElementRelationship)
		}
		switch *r.NamedType {
		case "io.k8s.apimachinery.pkg.apis.meta.v1.Time", "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime", "io.k8s.apimachinery.pkg.api.resource.Quantity",
			"io.k8s.apimachinery.pkg.util.intstr.IntOrString":
			return "value"
		case "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", "__untyped_deduced_", "__untyped_atomic_":
			return "anything"
		}
		return *r.NamedType + rel
	case a.Scalar != nil && a.List == nil && a.Map == nil:
		return "value"
	case a.List != nil:
		return fmt.Sprint("list of ", shape(a.List.ElementType), " ", a.List.ElementRelationship, a.List.Keys)
	case a.Map != nil:
		return fmt.Sprint("map of ", shape(a.Map.ElementType), " ", a.Map.ElementRelationship)
	default:
		return "?"
	}
}

package podcheck

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nodewright/nodewright/internal/testprogram"
)

// free are the types of strings that have no fixed values.
var free = []reflect.Type{
	of[string](), of[types.UID](), of[v1.Capability](), of[v1.ResourceName](), of[v1.PodConditionType](),
	of[metav1.ManagedFieldsOperationType](), // servers' notes in the metadata of a claim's template
}

// strings in the trees of the specs of pods and PersistentVolumes, by the type, with a field of it each.
func stringTypes() map[reflect.Type]string {
	out, seen := map[reflect.Type]string{}, map[reflect.Type]bool{}
	var look func(t reflect.Type, at string)
	look = func(t reflect.Type, at string) {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice:
			look(t.Elem(), at)
		case reflect.Map:
			look(t.Key(), at)
			look(t.Elem(), at)
		case reflect.String:
			out[t] = at
		case reflect.Struct:
			if seen[t] || t.Name() == "Quantity" { // a number
				return
			}
			seen[t] = true
			for i := range t.NumField() {
				if f := t.Field(i); f.IsExported() {
					look(f.Type, t.Name()+"."+f.Name)
				}
			}
		}
	}
	look(of[v1.PodSpec](), "")
	look(of[v1.PersistentVolumeSpec](), "")
	return out
}

// A version of the API with a new type of words has to be decided on.
func TestEveryTypeOfWordsIsKnown(t *testing.T) {
	found := stringTypes()
	for typ, at := range found {
		_, known := words[typ]
		if known == slices.Contains(free, typ) {
			t.Errorf("%v of %s: in the table of words %t, among the free ones %t", typ, at, known, slices.Contains(free, typ))
		}
	}
	for typ := range words {
		if found[typ] == "" {
			t.Errorf("%v is nowhere in the specs", typ)
		}
	}
}

// The words are those that the API's package has constants for: all of them.
func TestWordsAreTheAPIsConstants(t *testing.T) {
	declared := map[string][]string{}
	for typ := range map[reflect.Type]bool{of[v1.PodSpec](): true, of[metav1.LabelSelector](): true} {
		dir := testprogram.Go(t, ".", "list", "-f", "{{.Dir}}", typ.PkgPath())
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(strings.TrimSpace(dir), "types.go"), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.ValueSpec); ok && len(s.Values) == 1 {
				name, ok := s.Type.(*ast.Ident)
				value, literal := s.Values[0].(*ast.BasicLit)
				if ok && literal && value.Kind == token.STRING {
					word, _ := strconv.Unquote(value.Value)
					declared[name.Name] = append(declared[name.Name], word)
				}
			}
			return true
		})
	}
	for typ, w := range words {
		allowed := slices.Sorted(slices.Values(w.allowed))
		var want []string
		for _, word := range declared[typ.Name()] {
			if word == string(v1.StorageMediumHugePagesPrefix) {
				word += "SIZE"
			}
			want = append(want, word)
		}
		slices.Sort(want)
		if want = slices.Compact(want); len(want) == 0 || !slices.Equal(allowed, want) {
			t.Errorf("%v: the table has %q, the API %q", typ, allowed, want)
		}
	}
}

// Every field of words, wherever it is in the spec: a word of the API is taken,
// and no other.
func TestEveryFieldOfWordsIsChecked(t *testing.T) {
	fields := 0
	var fill func(root *v1.PodSpec, val reflect.Value, at string)
	try := func(spec *v1.PodSpec, val reflect.Value, at string) {
		fields++
		w := words[val.Type()]
		for _, s := range append([]string{"no-such-word", strings.ToLower(w.allowed[0]) + "x", " " + w.allowed[0], "\x00", strings.Repeat("x", 1<<14)}, w.allowed...) {
			val.SetString(s)
			v := &checker{pod: &v1.Pod{Spec: *spec}}
			v.words()
			errs := slices.DeleteFunc(v.errs, func(e *field.Error) bool { return e.Field != at })
			if good := w.takes(s); good != (len(errs) == 0) {
				t.Errorf("%s: %.30q: %v", at, s, v.errs)
			}
			for _, e := range errs {
				if len(e.Error()) > 2000 || !strings.Contains(e.Error(), w.allowed[0]) {
					t.Errorf("%s: the error has %d bytes: %.300s", at, len(e.Error()), e)
				}
			}
		}
		val.SetString(w.allowed[0])
	}
	fill = func(root *v1.PodSpec, val reflect.Value, at string) {
		if _, ok := words[val.Type()]; ok {
			try(root, val, at)
			return
		}
		switch val.Kind() {
		case reflect.Pointer:
			if planOf(val.Type()) != nil {
				val.Set(reflect.New(val.Type().Elem()))
				fill(root, val.Elem(), at)
			}
		case reflect.Slice:
			if planOf(val.Type()) != nil {
				val.Set(reflect.MakeSlice(val.Type(), 2, 2))
				fill(root, val.Index(1), at+"[1]")
				val.SetLen(0)
			}
		case reflect.Struct:
			for i := range val.NumField() {
				f := val.Type().Field(i)
				if planOf(f.Type) == nil || !f.IsExported() {
					continue
				}
				name := at
				if n := jsonName(f); n != "" {
					name += "." + n
				}
				fill(root, val.Field(i), name)
			}
		}
	}
	spec := &v1.PodSpec{}
	fill(spec, reflect.ValueOf(spec).Elem(), "spec")
	if fields < 60 {
		t.Errorf("%d fields were found", fields)
	}
}

func TestStorageMedium(t *testing.T) {
	w := words[of[v1.StorageMedium]()]
	for s, want := range map[string]bool{
		"": true, "Memory": true, "HugePages": true, "HugePages-2Mi": true, "HugePages-1Gi": true, "HugePages-65536": true,
		"HugePages-": false, "HugePages-SIZE": false, "HugePages-1e9": false, "HugePages-2Mi ": false, "hugepages-2Mi": false,
		"HugePages-1e-2000000000": false, "HugePages--1": false,
	} {
		if w.takes(s) != want {
			t.Errorf("%q: taken %t", s, !want)
		}
	}
}

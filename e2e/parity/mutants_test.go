package parity

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// mutant is an object that differs in one place from one that is valid.
type mutant struct {
	what string // path and change
	raw  []byte
}

// value takes the place of another one.
type value struct {
	what string
	v    any
}

var (
	strangeTexts = []value{
		{`""`, ""}, {"Not Valid!", "Not Valid!"}, {"too long", strings.Repeat("a", 300)}, {"../x", "../x"}, {"a/b", "a/b"}, {"Name", "Name"},
		{"a/b/c", "a/b/c"}, {"/x", "/x"}, {"ü", "ü"}, {"_", "_"}, {"x", "x"},
	}
	strangeNumbers    = []value{{"-1", -1}, {"0", 0}, {"1", 1}, {"101", 101}, {"70000", 70000}}
	strangeQuantities = []value{{"-1", "-1"}, {"0", "0"}, {"1.5", "1.5"}, {"1m", "1m"}, {"4Mi", "4Mi"}, {"many", "many"}}
	strangeKeys       = []string{"", "Not Valid!", "a/b/c", "../x", "Foo", "_", strings.Repeat("a", 300), "x"}
)

// mutation makes mutants of one object by the type that it is of.
type mutation struct {
	t    *testing.T
	base map[string]any
	skip func(path string) bool
	out  []mutant
}

// mutants changes each field of an object in some ways, and sets each one that it does not
// have.
func mutants(t *testing.T, base map[string]any, typ reflect.Type, skip func(path string) bool) []mutant {
	t.Helper()
	m := &mutation{t: t, base: base, skip: skip}
	m.object("", base, typ)
	slices.SortFunc(m.out, func(a, b mutant) int { return strings.Compare(a.what, b.what) })
	return m.out
}

func (m *mutation) add(what string) {
	raw, err := json.Marshal(m.base)
	if err != nil {
		m.t.Fatal(err)
	}
	m.out = append(m.out, mutant{what, raw})
}

// fieldsOf lists the fields of a struct by their names in JSON.
func fieldsOf(typ reflect.Type) (names []string, types map[string]reflect.Type) {
	types = map[string]reflect.Type{}
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case !f.IsExported() || name == "-":
		case strings.Contains(options, "inline") || name == "":
			more, moreTypes := fieldsOf(bare(f.Type))
			for _, n := range more {
				names, types[n] = append(names, n), moreTypes[n]
			}
		default:
			names, types[name] = append(names, name), f.Type
		}
	}
	return names, types
}

func bare(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

func (m *mutation) object(path string, node map[string]any, typ reflect.Type) {
	names, types := fieldsOf(typ)
	for _, name := range names {
		at := path + "." + name
		if m.skip(at) {
			continue
		}
		child, ok := node[name]
		if !ok {
			for _, f := range fillers(types[name]) {
				node[name] = f.v
				m.add(at + " is set to " + f.what)
			}
			delete(node, name)
			continue
		}
		delete(node, name)
		m.add(at + " is left out")
		node[name] = child
		m.value(at, child, types[name], func(v any) { node[name] = v })
		node[name] = child
	}
}

// value changes what is at a path; set puts a value there.
func (m *mutation) value(path string, node any, typ reflect.Type, set func(any)) {
	typ = bare(typ)
	try := func(values []value) {
		for _, v := range values {
			if reflect.DeepEqual(v.v, node) {
				continue
			}
			set(v.v)
			m.add(path + " is " + v.what)
		}
		set(node)
	}
	switch typ {
	case reflect.TypeFor[resource.Quantity]():
		try(strangeQuantities)
		return
	case reflect.TypeFor[intstr.IntOrString]():
		try(append(slices.Clone(strangeNumbers), strangeTexts...))
		return
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		try([]value{{"another time", "2001-01-01T00:00:00.000000Z"}})
		return
	case reflect.TypeFor[runtime.RawExtension]():
		try([]value{{"another object", map[string]any{"x": "y"}}})
		return
	}
	switch node := node.(type) {
	case map[string]any:
		if typ.Kind() == reflect.Struct {
			m.object(path, node, typ)
			return
		}
		for _, k := range sortedKeys(node) {
			child := node[k]
			delete(node, k)
			m.add(path + "[" + k + "] is left out")
			node[k] = child
			m.value(path+"["+k+"]", child, typ.Elem(), func(v any) { node[k] = v })
			node[k] = child
		}
		for _, k := range strangeKeys {
			if _, ok := node[k]; !ok {
				node[k] = fillers(typ.Elem())[0].v
				m.add(fmt.Sprintf("%s has the key %.20q", path, k))
				delete(node, k)
			}
		}
	case []any:
		set([]any{})
		m.add(path + " is empty")
		if len(node) > 0 {
			set(append(slices.Clone(node), node[0]))
			m.add(path + " has its first twice")
		}
		for _, f := range fillers(typ.Elem()) {
			set(append(slices.Clone(node), f.v))
			m.add(path + " has " + f.what + " as well")
		}
		set(node)
		for i, child := range node {
			m.value(path+"["+strconv.Itoa(i)+"]", child, typ.Elem(), func(v any) { node[i] = v })
			node[i] = child
		}
	case string:
		if typ.Kind() == reflect.Slice { // of bytes
			try([]value{{`""`, ""}, {"other bytes", "eA=="}})
			return
		}
		try(append(slices.Clone(strangeTexts), value{"longer", node + "x"}))
	case float64:
		try(append(slices.Clone(strangeNumbers), value{"more by one", node + 1}, value{"less by one", node - 1}))
	case bool:
		set(!node)
		m.add(fmt.Sprintf("%s is %v", path, !node))
		set(node)
	}
}

// fillers are what a field that is not set may be set to.
func fillers(typ reflect.Type) []value {
	typ = bare(typ)
	switch typ {
	case reflect.TypeFor[resource.Quantity]():
		return []value{{"1", "1"}, {"-1", "-1"}}
	case reflect.TypeFor[intstr.IntOrString]():
		return []value{{"1", 1}}
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		return []value{{"a time", "2001-01-01T00:00:00.000000Z"}}
	case reflect.TypeFor[runtime.RawExtension](), reflect.TypeFor[metav1.FieldsV1]():
		return []value{{"{}", map[string]any{}}}
	}
	switch typ.Kind() {
	case reflect.String:
		return []value{{"x", "x"}, {"Not Valid!", "Not Valid!"}}
	case reflect.Bool:
		return []value{{"true", true}, {"false", false}}
	case reflect.Map:
		out := []value{{"{}", map[string]any{}}}
		for _, f := range fillers(typ.Elem()) {
			out = append(out, value{"{x: " + f.what + "}", map[string]any{"x": f.v}})
		}
		return out
	case reflect.Slice:
		if typ.Elem().Kind() == reflect.Uint8 {
			return []value{{"bytes", "eA=="}}
		}
		out := []value{{"[]", []any{}}}
		for _, f := range fillers(typ.Elem()) {
			out = append(out, value{"[" + f.what + "]", []any{f.v}})
		}
		return out
	case reflect.Struct:
		out := []value{{"{}", map[string]any{}}}
		names, types := fieldsOf(typ)
		for _, n := range names {
			f := fillers(types[n])[0]
			out = append(out, value{"{" + n + ": " + f.what + "}", map[string]any{n: f.v}})
		}
		return out
	default:
		return []value{{"1", 1}, {"-1", -1}}
	}
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

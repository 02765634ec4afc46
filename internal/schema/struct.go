package schema

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Struct describes a Go struct of the Kubernetes API: its fields, and how patches merge them.
type Struct struct {
	// Name is the model's name in OpenAPI, such as io.k8s.api.core.v1.Pod.
	Name string
	// Atomic structs are replaced as a whole.
	Atomic bool
	Fields []Field // sorted by name

	byName map[string]*Field
}

// Field describes one field of a Struct.
type Field struct {
	Name     string // name in JSON
	Type     reflect.Type
	Required bool // it is written even without a value
	// MergeKey and Merges say how strategic merge patches merge a list. RetainKeys says that
	// the struct is a union: a patch removes the keys that the patch itself does not contain.
	MergeKey           string
	Merges, RetainKeys bool
	// List says how server-side apply merges a list: atomic, set or map. Keys are the keys of a
	// map.
	List ListType
	Keys []string
	// Relation says how server-side apply merges a map or a struct, if not by the default for its
	// type.
	Relation Relation
	// Default is the value of a list key that an item does not set; nil for none.
	Default any
}

// ListType is the value of the marker listType.
type ListType string

// The types of lists.
const (
	Atomic ListType = "atomic"
	Set    ListType = "set"
	Map    ListType = "map"
)

// Relation is the value of the markers mapType and structType.
type Relation string

// The values of Relation.
const (
	Whole Relation = "atomic"    // it is replaced as a whole
	ByKey Relation = "separable" // each key is merged separately
)

// Scalar is a type that is written as a single value, even if it is a struct in Go.
type Scalar struct {
	Type   string // type in JSON; "" if there are several
	Format string
}

var (
	special = map[reflect.Type]Scalar{
		reflect.TypeFor[metav1.Time]():        {"string", "date-time"},
		reflect.TypeFor[metav1.MicroTime]():   {"string", "date-time"},
		reflect.TypeFor[metav1.Duration]():    {"string", ""},
		reflect.TypeFor[intstr.IntOrString](): {"", "int-or-string"},
		reflect.TypeFor[resource.Quantity]():  {"", "quantity"},
		reflect.TypeFor[[]byte]():             {"string", "byte"},
	}
	// anything are types that contain objects of any kind.
	anything = []reflect.Type{
		reflect.TypeFor[metav1.FieldsV1](), reflect.TypeFor[runtime.RawExtension](),
	}
)

// ScalarOf returns how a type is written in JSON; false if it is a struct, a list, a map or
// anything.
func ScalarOf(t reflect.Type) (Scalar, bool) {
	t = Bare(t)
	if s, ok := special[t]; ok {
		return s, true
	}
	switch t.Kind() {
	case reflect.String:
		return Scalar{Type: "string"}, true
	case reflect.Bool:
		return Scalar{Type: "boolean"}, true
	case reflect.Int64:
		return Scalar{"integer", "int64"}, true
	case reflect.Int, reflect.Int32, reflect.Int16, reflect.Int8, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return Scalar{"integer", "int32"}, true
	case reflect.Float32, reflect.Float64:
		return Scalar{"number", "double"}, true
	default:
		return Scalar{}, false
	}
}

// Anything reports whether a type contains an object of any kind.
func Anything(t reflect.Type) bool {
	t = Bare(t)
	return slices.Contains(anything, t) || t.Kind() == reflect.Interface
}

// Bare returns the type behind pointers.
func Bare(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

var structs sync.Map // *Struct by reflect.Type; only types of this program, so it stays small

// Of describes a struct, or a pointer to one; nil for other types.
func Of(t reflect.Type) *Struct {
	t = Bare(t)
	if t.Kind() != reflect.Struct {
		return nil
	}
	if s, ok := structs.Load(t); ok {
		return s.(*Struct)
	}
	s := &Struct{Name: modelName(t)}
	s.Atomic = slices.Contains(atomicStructs, s.Name)
	s.add(t)
	slices.SortFunc(s.Fields, func(a, b Field) int { return strings.Compare(a.Name, b.Name) })
	s.byName = make(map[string]*Field, len(s.Fields))
	for i := range s.Fields {
		s.byName[s.Fields[i].Name] = &s.Fields[i]
	}
	have, _ := structs.LoadOrStore(t, s)
	return have.(*Struct)
}

// Field returns a field by its JSON name; nil if there is none.
func (s *Struct) Field(name string) *Field {
	if s == nil {
		return nil
	}
	return s.byName[name]
}

// add adds the fields of a struct, including those of embedded structs.
func (s *Struct) add(t reflect.Type) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case f.Anonymous && name == "":
			s.add(Bare(f.Type))
		case name != "" && f.IsExported():
			s.Fields = append(s.Fields, s.field(f, name, options))
		}
	}
}

func (s *Struct) field(f reflect.StructField, name, options string) Field {
	strategy := strings.Split(f.Tag.Get("patchStrategy"), ",")
	out := Field{
		Name: name, Type: f.Type, MergeKey: f.Tag.Get("patchMergeKey"),
		Merges: slices.Contains(strategy, "merge"), RetainKeys: slices.Contains(strategy, "retainKeys"),
		Required: !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero"),
	}
	if t := Bare(f.Type); t.Kind() == reflect.Slice && special[t] == (Scalar{}) {
		switch {
		case out.Merges && out.MergeKey != "":
			out.List, out.Keys = Map, []string{out.MergeKey}
		case out.Merges:
			out.List = Set
		default:
			out.List = Atomic
		}
	}
	marks[s.Name+"."+name].onto(&out)
	return out
}

// modelName returns the model's name in OpenAPI for a type: its package path with the host name
// reversed, as in Kubernetes (OpenAPIModelName).
func modelName(t reflect.Type) string {
	path := strings.Split(t.PkgPath(), "/")
	if len(path) > 0 {
		host := strings.Split(path[0], ".")
		slices.Reverse(host)
		path[0] = strings.Join(host, ".")
	}
	return strings.Join(append(path, t.Name()), ".")
}

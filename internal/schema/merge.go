package schema

import (
	"reflect"

	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// deduced is the model for values of any type: maps are merged by key, lists are replaced.
const deduced = "__untyped_deduced_"

// Merge returns the models for server-side apply of some kinds, given as values of their Go
// types, and of all types in them.
func Merge(kinds ...any) *typed.Parser {
	m := merger{seen: map[string]bool{}}
	m.types = append(m.types, smd.TypeDef{Name: deduced, Atom: anyAtom()})
	for _, k := range kinds {
		m.ref(reflect.TypeOf(k))
	}
	return &typed.Parser{Schema: smd.Schema{Types: m.types}}
}

// merger collects models.
type merger struct {
	types []smd.TypeDef
	seen  map[string]bool
}

func (m *merger) ref(t reflect.Type) smd.TypeRef {
	t = Bare(t)
	if s, ok := ScalarOf(t); ok {
		return smd.TypeRef{Inlined: smd.Atom{Scalar: scalar(s)}}
	}
	if Anything(t) {
		return named(deduced)
	}
	switch t.Kind() {
	case reflect.Map:
		return smd.TypeRef{Inlined: smd.Atom{Map: &smd.Map{ElementType: m.ref(t.Elem())}}}
	case reflect.Slice:
		return m.list(&Field{Type: t, List: Atomic})
	default:
		s := Of(t)
		m.add(s)
		return named(s.Name)
	}
}

func (m *merger) add(s *Struct) {
	if m.seen[s.Name] {
		return
	}
	m.seen[s.Name] = true
	def := smd.TypeDef{Name: s.Name, Atom: smd.Atom{Map: &smd.Map{}}}
	if s.Atomic {
		def.Map.ElementRelationship = smd.Atomic
	}
	for i := range s.Fields {
		f := &s.Fields[i]
		def.Map.Fields = append(def.Map.Fields, smd.StructField{Name: f.Name, Type: m.field(f), Default: f.Default})
	}
	m.types = append(m.types, def)
}

func (m *merger) field(f *Field) smd.TypeRef {
	if f.List != "" {
		return m.list(f)
	}
	ref := m.ref(f.Type)
	if f.Relation == "" {
		return ref
	}
	relation := smd.ElementRelationship(f.Relation)
	if ref.NamedType != nil {
		ref.ElementRelationship = &relation
	} else {
		ref.Inlined.Map.ElementRelationship = relation
	}
	return ref
}

func (m *merger) list(f *Field) smd.TypeRef {
	l := &smd.List{ElementType: m.ref(Bare(f.Type).Elem()), ElementRelationship: smd.Associative, Keys: f.Keys}
	if f.List == Atomic {
		l.ElementRelationship = smd.Atomic
	}
	return smd.TypeRef{Inlined: smd.Atom{List: l}}
}

func scalar(s Scalar) *smd.Scalar {
	out := smd.Untyped
	switch s.Type {
	case "string":
		out = smd.String
	case "boolean":
		out = smd.Boolean
	case "integer", "number":
		out = smd.Numeric
	}
	return &out
}

func named(name string) smd.TypeRef { return smd.TypeRef{NamedType: &name} }

func anyAtom() smd.Atom {
	untyped := smd.Untyped
	return smd.Atom{
		Scalar: &untyped,
		List:   &smd.List{ElementType: named(deduced), ElementRelationship: smd.Atomic},
		Map:    &smd.Map{ElementType: named(deduced), ElementRelationship: smd.Separable},
	}
}

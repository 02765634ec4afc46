package manifestguard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/internal/quantity"
)

// Field is a field of a document with a quantity that is too costly to parse.
type Field struct {
	Path  string // such as spec.containers[0].resources.limits[cpu]
	Value string // the first 64 bytes of the quantity
}

// maxFields is the maximum number of Fields that Inspect returns.
const maxFields = 20

// Inspect returns the approximate number of bytes in memory that a JSON object needs when
// it is decoded into the type of into. costly are the first 20 fields with quantities that
// must not be parsed. Field names are case-sensitive, as in Kubernetes. For invalid JSON
// both results are zero.
func Inspect(text []byte, into any) (size int, costly []Field) {
	if !json.Valid(text) {
		return 0, nil
	}
	w := &walk{size: len(text), dec: json.NewDecoder(bytes.NewReader(text))}
	w.dec.UseNumber()
	w.value(nil, reflect.TypeOf(into))
	return w.size, w.found
}

// Decodable returns an error for JSON that must not be decoded into the type of into: a
// [quantity.ErrTooCostly] if a quantity is too costly to parse, or another error if the
// decoded object would need more than limit bytes of memory. For invalid JSON, Decodable
// returns nil, because the decoder returns a better error.
func Decodable(text []byte, into any, limit int) error {
	size, costly := Inspect(text, into)
	if len(costly) > 0 {
		return fmt.Errorf("%s: %q: %w", costly[0].Path, costly[0].Value, quantity.ErrTooCostly)
	}
	if size > limit {
		return fmt.Errorf("needs %d bytes of memory; want at most %d", size, limit)
	}
	return nil
}

// walk reads a text token by token, so that it sees every value of a field that occurs
// more than once. A decoder would decode all of these values, one after the other.
type walk struct {
	dec   *json.Decoder
	size  int
	found []Field
}

// place is the path of a value in an object. The walk has a place for each value, and
// builds the text of a path only for a costly quantity.
type place struct {
	in   *place
	name string // a field, or a map's key in brackets; "" for an item of an array
	at   int    // index of an item
}

func (p *place) String() string {
	if p == nil {
		return ""
	}
	if p.name == "" {
		return fmt.Sprintf("%s[%d]", p.in, p.at)
	}
	if p.in == nil || p.name[0] == '[' {
		return p.in.String() + p.name
	}
	return p.in.String() + "." + p.name
}

var (
	quantityType    = reflect.TypeFor[resource.Quantity]()
	unmarshalerType = reflect.TypeFor[json.Unmarshaler]()
)

// value reads a value of the type t, or of an unknown type if t is nil. It adds the
// value's own size only if the value is behind a pointer, because otherwise the size of
// the parent includes the value.
func (w *walk) value(at *place, t reflect.Type) {
	token, _ := w.dec.Token()
	if t == nil {
		w.skip(token)
		return
	}
	if token == nil {
		return // null
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
		w.size += int(t.Size())
	}
	switch {
	case t == quantityType:
		w.quantity(at, token)
		w.skip(token)
	case reflect.PointerTo(t).Implements(unmarshalerType):
		w.skip(token)
	case token == json.Delim('{') && (t.Kind() == reflect.Map || t.Kind() == reflect.Struct):
		w.object(at, t)
	case token == json.Delim('[') && t.Kind() == reflect.Slice:
		for i := 0; w.dec.More(); i++ {
			w.size += int(t.Elem().Size())
			w.value(&place{in: at, at: i}, t.Elem())
		}
		_, _ = w.dec.Token()
	default:
		w.skip(token)
	}
}

func (w *walk) object(at *place, t reflect.Type) {
	var known map[string]reflect.Type
	if t.Kind() == reflect.Struct {
		known = fieldsOf(t)
	}
	for w.dec.More() {
		token, _ := w.dec.Token()
		name, _ := token.(string)
		if t.Kind() == reflect.Struct {
			w.value(&place{in: at, name: name}, known[name])
			continue
		}
		w.size += 2 * int(t.Key().Size()+t.Elem().Size())
		w.value(&place{in: at, name: fmt.Sprintf("[%.64s]", name)}, t.Elem())
	}
	_, _ = w.dec.Token()
}

// skip reads the rest of a value after its first token.
func (w *walk) skip(token json.Token) {
	depth := 0
	for {
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth <= 0 {
			return
		}
		var err error
		if token, err = w.dec.Token(); err != nil {
			return
		}
	}
}

func (w *walk) quantity(at *place, token json.Token) {
	text := ""
	switch v := token.(type) {
	case string:
		text = v
	case json.Number:
		text = v.String()
	}
	// The decoder of quantities trims blanks, too.
	if len(w.found) < maxFields && !quantity.Cheap(strings.TrimSpace(text)) {
		w.found = append(w.found, Field{Path: at.String(), Value: fmt.Sprintf("%.64s", text)})
	}
}

// types caches the results of fieldsOf.
var types sync.Map // of reflect.Type to map[string]reflect.Type

// fieldsOf returns the types of a struct's fields, including those of embedded structs, by their
// JSON names.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	if known, ok := types.Load(t); ok {
		return known.(map[string]reflect.Type)
	}
	out := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && f.Anonymous:
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			if inner.Kind() == reflect.Struct {
				for n, ft := range fieldsOf(inner) {
					if out[n] == nil {
						out[n] = ft
					}
				}
			}
		case name == "":
			out[f.Name] = f.Type
		default:
			out[name] = f.Type
		}
	}
	types.Store(t, out)
	return out
}

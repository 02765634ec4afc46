package kubeapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nodewright/nodewright/internal/quantity"
)

// kindOfJSON returns the kind named in JSON data. It is empty if there is none or
// the JSON is invalid; then the caller's type decides.
func kindOfJSON(data []byte) schema.GroupVersionKind {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if json.Unmarshal(data, &head) != nil {
		return schema.GroupVersionKind{}
	}
	return schema.FromAPIVersionAndKind(head.APIVersion, head.Kind)
}

// magic begins Kubernetes' protobuf encoding; a runtime.Unknown follows.
var magic = []byte("k8s\x00")

// maxDepth limits the nesting of messages. Messages of Kubernetes have up to 20 levels.
const maxDepth = 100

// errTooDeep is returned for nesting at which the decoder could overflow its stack and end the
// process.
var errTooDeep = fmt.Errorf("want at most %d nested messages", maxDepth)

// errMalformed is returned for data that the decoder would refuse too.
var errMalformed = errors.New("malformed protobuf")

// checkProtobuf parses an answer without decoding it, and adds up the memory that
// the decoder would use. Data without the magic is left to the decoder.
func checkProtobuf(data []byte, as func(schema.GroupVersionKind) any) error {
	data, ok := bytes.CutPrefix(data, magic)
	if !ok {
		return nil
	}
	var apiVersion, kind string
	var objects [][]byte // the decoder keeps the last one; all are checked
	err := protoFields(data, func(n protowire.Number, _ protowire.Type, b []byte) error {
		switch n {
		case 1: // typeMeta
			return protoFields(b, func(n protowire.Number, _ protowire.Type, b []byte) error {
				switch n {
				case 1:
					apiVersion = string(b)
				case 2:
					kind = string(b)
				}
				return nil
			})
		case 2: // raw
			objects = append(objects, b)
		}
		return nil
	})
	into := as(schema.FromAPIVersionAndKind(apiVersion, kind))
	if err != nil || into == nil {
		return err
	}
	// All occurrences of the object share one limit, since all are decoded.
	w := sizer{limit: maxDecoded, left: maxDecoded}
	one := elementOf(into) == nil
	for _, b := range objects {
		t := reflect.TypeOf(into)
		look := func(w *sizer) error { return w.message(b, t, 0) }
		if one {
			err = w.object(b, look)
		} else {
			err = look(&w)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// protoFields calls f with each field of a message; b is nil for numbers. It returns
// the first error of f, or errMalformed.
func protoFields(message []byte, f func(n protowire.Number, t protowire.Type, b []byte) error) error {
	for len(message) > 0 {
		n, t, size := protowire.ConsumeTag(message)
		// A negative size is an error of protowire: a tag or a length reaches beyond the end.
		if size < 0 {
			return errMalformed
		}
		message = message[size:]
		var b []byte
		if t == protowire.BytesType {
			b, size = protowire.ConsumeBytes(message)
		} else {
			size = protowire.ConsumeFieldValue(n, t, message)
		}
		if size < 0 {
			return errMalformed
		}
		message = message[size:]
		if err := f(n, t, b); err != nil {
			return err
		}
	}
	return nil
}

// sizer parses a message like the decoder of a Kubernetes API type, and subtracts
// the memory that the result would use from left, which starts at limit.
type sizer struct{ limit, left int }

// object checks one object with the limits for objects. look parses it.
func (s *sizer) object(b []byte, look func(*sizer) error) error {
	if len(b) > maxObject {
		return fmt.Errorf("an object has %d bytes; want at most %d", len(b), maxObject)
	}
	limit := min(s.left, maxObjectDecoded)
	// Counted for the whole answer as well: many objects just below their own limit add up.
	own := sizer{limit: limit, left: limit}
	err := look(&own)
	s.left -= limit - max(own.left, 0)
	return err
}

var (
	quantityType      = reflect.TypeFor[resource.Quantity]()
	quantityValueType = reflect.TypeFor[resource.QuantityValue]()
)

// message checks a message of type t. It counts the memory behind pointers; the rest of
// t is counted as part of the type that contains it.
func (s *sizer) message(b []byte, t reflect.Type, depth int) error {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
		if err := s.take(int(t.Size())); err != nil {
			return err
		}
	}
	if depth > maxDepth {
		return errTooDeep
	}
	// Without this check, the parsing of a quantity with an exponent of a billion might
	// not end.
	if t == quantityType || t == quantityValueType {
		return protoFields(b, func(n protowire.Number, _ protowire.Type, text []byte) error {
			if n == 1 && !quantity.Cheap(strings.TrimSpace(string(text[:min(len(text), quantity.MaxLength+1)]))) {
				return fmt.Errorf("%.64q: %w", text, quantity.ErrTooCostly)
			}
			return nil
		})
	}
	switch t.Kind() {
	case reflect.Struct:
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return s.take(len(b))
		}
		// A list that is a message of its own, with its elements in field 1.
		return protoFields(b, func(_ protowire.Number, _ protowire.Type, b []byte) error { return s.field(b, t, depth) })
	default:
		return s.take(len(b))
	}
	types := fieldsOf(t)
	return protoFields(b, func(n protowire.Number, wire protowire.Type, b []byte) error {
		t := types[n]
		// For unknown fields and numbers, the decoder allocates little or nothing.
		if t == nil || wire != protowire.BytesType {
			return s.take(8)
		}
		return s.field(b, t, depth)
	})
}

// field checks one occurrence of a field of type t.
func (s *sizer) field(b []byte, t reflect.Type, depth int) error {
	if t.Kind() == reflect.Pointer {
		return s.message(b, t, depth+1)
	}
	switch t.Kind() {
	case reflect.Struct:
		return s.message(b, t, depth+1)
	case reflect.Map:
		const overhead = 16 // of a map, for each entry
		if err := s.take(int(t.Key().Size()) + int(t.Elem().Size()) + overhead); err != nil {
			return err
		}
		return protoFields(b, func(n protowire.Number, _ protowire.Type, b []byte) error {
			switch n {
			case 1:
				return s.take(len(b))
			case 2:
				return s.message(b, t.Elem(), depth+1)
			}
			return nil
		})
	case reflect.Slice:
		elem := t.Elem()
		if elem.Kind() == reflect.Uint8 {
			return s.take(len(b))
		}
		if err := s.take(int(elem.Size())); err != nil {
			return err
		}
		// Only at the top level: an object within an object, such as a template, counts for the
		// outer one.
		if depth == 0 && isObject(elem) { // of a list
			return s.object(b, func(own *sizer) error { return own.field(b, elem, depth) })
		}
		return s.field(b, elem, depth)
	default:
		return s.take(len(b))
	}
}

// take subtracts n from the remaining bytes (left), and returns an error if fewer than n remained.
func (s *sizer) take(n int) error {
	if s.left -= n; s.left < 0 {
		return fmt.Errorf("answer comes to more than %d bytes in memory", s.limit)
	}
	return nil
}

// known has the types of the fields of each type by number, as fieldsOf returns
// them.
var known sync.Map

// fieldsOf reads the numbers of fields from their tags, such as
// `protobuf:"bytes,2,opt,name=spec"`.
func fieldsOf(t reflect.Type) map[protowire.Number]reflect.Type {
	if have, ok := known.Load(t); ok {
		return have.(map[protowire.Number]reflect.Type)
	}
	out := map[protowire.Number]reflect.Type{}
	for i := range t.NumField() {
		tag := strings.Split(t.Field(i).Tag.Get("protobuf"), ",")
		if len(tag) < 2 {
			continue
		}
		if n, err := strconv.ParseInt(tag[1], 10, 32); err == nil {
			out[protowire.Number(n)] = t.Field(i).Type
		}
	}
	known.Store(t, out)
	return out
}

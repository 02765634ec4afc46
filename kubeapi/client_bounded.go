package kubeapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nodewright/nodewright/internal/manifestguard"
	"github.com/nodewright/nodewright/internal/quantity"
)

// Limits of a server's answers. An API server accepts objects of 1.5 MiB (etcd's own
// limit); the pods of a full node are far below the other limits, even if each pod has
// the largest size.
const (
	// maxAnswer limits the bytes of an answer. client-go limits an event of a watch to 16 MiB.
	maxAnswer = 256 << 20
	// maxDecoded is the approximate limit of an answer's size in memory, in bytes:
	// an empty container is two bytes of protobuf and eight hundred in memory.
	maxDecoded = 1 << 30
	// maxObject limits the bytes of one object, alone, in a list or in an event. maxObjectDecoded
	// limits its size in memory. A server accepts requests of 3 MiB, which are slightly larger in
	// its answers, and a text of many small values grows tenfold.
	maxObject        = 8 << 20
	maxObjectDecoded = 64 << 20
	// maxValues limits the number of values in a JSON answer, names of fields included. Each
	// value takes some hundred bytes while its quantities are checked. A server without protobuf
	// answers in JSON.
	maxValues = 5_000_000
)

// boundedAnswers limits the size of answers.
type boundedAnswers struct{ next http.RoundTripper }

// RoundTrip limits the body of an answer, except for watches: client-go limits each event of a
// watch.
func (b boundedAnswers) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := b.next.RoundTrip(req)
	if err == nil && req.URL.Query().Get("watch") != "true" {
		limit := int64(maxAnswer)
		if req.Context().Value(oneObject{}) != nil {
			limit = maxObject
		}
		res.Body = &boundedBody{ReadCloser: res.Body, limit: limit, left: limit}
	}
	return res, err
}

// oneObject is the key of a context whose request is answered with one object.
type oneObject struct{}

// boundedBody is the body of an answer. Reading more than limit bytes is an error; left is
// negative from then on.
type boundedBody struct {
	io.ReadCloser
	limit, left int64
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, fmt.Errorf("the API server's answer has more than %d bytes", b.limit)
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1] // one more shows that there is more
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n - 1, nil
	}
	return n, err
}

// checkedCodecs check data before they decode it. Quantities that would take too long to
// parse, and data that would use too much memory, are errors. They support protobuf and
// JSON.
type checkedCodecs struct {
	runtime.NegotiatedSerializer
	types []runtime.SerializerInfo
}

// checked wraps the serializers of s. YAML and CBOR are left out, since they are
// never requested.
func checked(s runtime.NegotiatedSerializer, scheme *runtime.Scheme) checkedCodecs {
	c := checkedCodecs{NegotiatedSerializer: s}
	for _, info := range s.SupportedMediaTypes() {
		switch info.MediaType {
		case runtime.ContentTypeProtobuf:
			info.Serializer = checkedSerializer{info.Serializer, scheme, checkProtobuf}
		case runtime.ContentTypeJSON:
			info.Serializer = checkedSerializer{info.Serializer, scheme, checkJSON}
		default:
			continue
		}
		c.types = append(c.types, info)
	}
	return c
}

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (c checkedCodecs) SupportedMediaTypes() []runtime.SerializerInfo { return c.types }

// checkedSerializer checks data before it decodes it. new creates an object of the kind
// that the data names, or else of the kind of into.
type checkedSerializer struct {
	runtime.Serializer
	scheme *runtime.Scheme
	check  func(data []byte, as func(schema.GroupVersionKind) any) error
}

// Decode implements runtime.Decoder.
func (s checkedSerializer) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	// The decoder's precedence: the data's kind, then the defaults, then the type
	// of into, so that the checked type is the decoded one.
	as := func(kind schema.GroupVersionKind) any {
		if defaults != nil {
			kind = withDefaults(kind, *defaults)
		}
		if into != nil {
			if kinds, _, err := s.scheme.ObjectKinds(into); err == nil && len(kinds) > 0 {
				kind = withDefaults(kind, kinds[0])
			}
		}
		if obj, err := s.scheme.New(kind); err == nil {
			return obj
		}
		return into
	}
	// Checked before decoding: the decoder would already use the memory.
	if err := s.check(data, as); err != nil {
		return nil, nil, fmt.Errorf("refused to decode the API server's answer: %w", err)
	}
	return s.Serializer.Decode(data, defaults, into)
}

// withDefaults sets the missing parts of a kind.
func withDefaults(kind, defaults schema.GroupVersionKind) schema.GroupVersionKind {
	if kind.Kind == "" {
		kind.Kind = defaults.Kind
	}
	if kind.Version == "" && kind.Group == "" {
		kind.Group, kind.Version = defaults.Group, defaults.Version
	}
	return kind
}

// checkJSON checks the whole answer first, and each object only if the answer is large enough to
// contain a too large object.
func checkJSON(data []byte, as func(schema.GroupVersionKind) any) error {
	// Counting needs no memory, unlike the checks below.
	if n := manifestguard.ShapeOf(data).Values; n > maxValues {
		return fmt.Errorf("answer has %d values; want at most %d", n, maxValues)
	}
	into := as(kindOfJSON(data))
	if into == nil {
		return nil // a kind that the decoder does not know either
	}
	size, costly := manifestguard.Inspect(data, into)
	switch {
	case len(costly) > 0:
		return fmt.Errorf("%s: %q: %w", costly[0].Path, costly[0].Value, quantity.ErrTooCostly)
	case size > maxDecoded:
		return fmt.Errorf("answer comes to %d bytes in memory; want at most %d", size, maxDecoded)
	case len(data) <= maxObject && size <= maxObjectDecoded:
		return nil
	}
	// The answer is within its limit, but one of its objects may exceed the limit of an object.
	elem := elementOf(into)
	if elem == nil {
		return oneJSON(data, into)
	}
	return items(data, func(item []byte) error { return oneJSON(item, reflect.New(elem).Interface()) })
}

// oneJSON checks one object.
func oneJSON(data []byte, into any) error {
	if len(data) > maxObject {
		return fmt.Errorf("an object has %d bytes; want at most %d", len(data), maxObject)
	}
	if size, _ := manifestguard.Inspect(data, into); size > maxObjectDecoded {
		return fmt.Errorf("an object comes to %d bytes in memory; want at most %d", size, maxObjectDecoded)
	}
	return nil
}

// elementOf returns the type of the objects of a list, or nil if into is not a list.
func elementOf(into any) reflect.Type {
	t := reflect.TypeOf(into)
	if t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return nil
	}
	if f, ok := t.Elem().FieldByName("Items"); ok && f.Type.Kind() == reflect.Slice && isObject(f.Type.Elem()) {
		return f.Type.Elem()
	}
	return nil
}

// objectType distinguishes objects from other structs.
var objectType = reflect.TypeFor[metav1.Object]()

// isObject reports whether a type is one of the API's objects, which have metadata.
func isObject(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && reflect.PointerTo(t).Implements(objectType)
}

// items calls f with each object of a list in JSON. It does so for every field that a
// decoder may take for the field items. It stops at invalid JSON.
func items(data []byte, f func([]byte) error) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	is := func(want json.Delim) bool {
		t, err := dec.Token()
		return err == nil && t == want
	}
	if !is('{') {
		return nil
	}
	var value json.RawMessage
	next := func() bool { return dec.More() && dec.Decode(&value) == nil }
	for dec.More() {
		var name string
		if key, err := dec.Token(); err == nil {
			name, _ = key.(string)
		}
		// encoding/json ignores the case of field names.
		if !strings.EqualFold(name, "items") || !bytes.HasPrefix(following(data, dec), []byte("[")) {
			if !next() {
				break
			}
			continue
		}
		if !is('[') {
			break
		}
		for next() {
			if err := f(value); err != nil {
				return err
			}
		}
		if !is(']') {
			break
		}
	}
	return nil
}

// following returns the data that dec has not read yet, without the colon before the
// value of a field.
func following(data []byte, dec *json.Decoder) []byte {
	return bytes.TrimLeft(data[dec.InputOffset():], ": \t\r\n")
}

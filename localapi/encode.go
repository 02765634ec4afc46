package localapi

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	kjson "sigs.k8s.io/json"

	"github.com/nodewright/nodewright/internal/manifestguard"
	"github.com/nodewright/nodewright/internal/wirecount"
)

// Limits for the body of a request, and for the object in it.
const (
	maxBody   = 3 << 20  // bytes; the API server's limit
	maxObject = 32 << 20 // bytes in memory
	maxDepth  = 100      // levels
	maxFields = 40_000   // fields of a protobuf message; each may become an object
	maxValues = 250_000  // values in YAML
)

// Media types.
const (
	typeJSON     = runtime.ContentTypeJSON
	typeYAML     = runtime.ContentTypeYAML
	typeProtobuf = runtime.ContentTypeProtobuf
)

// codecs has the codecs of all kinds.
type codecs struct {
	infos map[string]runtime.SerializerInfo
}

func newCodecs(scheme *runtime.Scheme) *codecs {
	c := &codecs{infos: map[string]runtime.SerializerInfo{}}
	for _, info := range serializer.NewCodecFactory(scheme, serializer.WithStreamingCollectionEncodingToJSON(), serializer.WithStreamingCollectionEncodingToProtobuf()).SupportedMediaTypes() {
		c.infos[info.MediaType] = info
	}
	return c
}

// accepted is the form in which a client wants its answer.
type accepted struct {
	info runtime.SerializerInfo
	as   string // Table, PartialObjectMetadata, PartialObjectMetadataList, or "" for the object itself
	gzip bool   // compress the answer: the client accepts gzip and is on another machine
}

// accept parses the Accept header, and returns the first form that is available.
func (c *codecs) accept(r *http.Request) (accepted, error) {
	header, zip := r.Header.Get("Accept"), isRemote(r.RemoteAddr) && takesGzip(r.Header.Get("Accept-Encoding"))
	if header == "" {
		return accepted{info: c.infos[typeJSON], gzip: zip}, nil
	}
	for part := range strings.SplitSeq(header, ",") {
		media, params, err := mime.ParseMediaType(strings.TrimSpace(part))
		if err != nil {
			continue
		}
		if media == "*/*" || media == "application/*" {
			media = typeJSON
		}
		info, ok := c.infos[media]
		as := params["as"]
		if !ok || as != "" && (params["g"] != metav1.GroupName || params["v"] != "v1") {
			continue
		}
		switch as {
		case "", "PartialObjectMetadata", "PartialObjectMetadataList":
			return accepted{info, as, zip}, nil
		case "Table":
			if media != typeProtobuf {
				return accepted{info, as, zip}, nil
			}
		}
	}
	return accepted{}, generic(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
		fmt.Sprintf("Accept is %.200q; want %s, %s or %s", header, typeJSON, typeYAML, typeProtobuf))
}

// isRemote reports whether a peer is on another machine. For a local peer, compressing an answer
// costs more than sending it.
func isRemote(peer string) bool {
	at, err := netip.ParseAddrPort(peer)
	return err == nil && !at.Addr().Unmap().IsLoopback() // the peer of a Unix socket has no such address
}

// takesGzip reports whether a header Accept-Encoding has gzip (RFC 9110, 12.5.3).
func takesGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, params, err := mime.ParseMediaType(part)
		weight, notNumber := strconv.ParseFloat(params["q"], 64)
		if err == nil && name == "gzip" && (params["q"] == "" || notNumber == nil && weight > 0) {
			return true
		}
	}
	return false
}

// minGzip is the size from which answers are compressed, in bytes; the API server's value.
const minGzip = 128 << 10

// respond answers with a small object.
func (c *codecs) respond(w http.ResponseWriter, a accepted, code int, o runtime.Object) {
	out := &answer{w: w, accept: a, code: code}
	if err := a.info.Serializer.Encode(o, out); err != nil && !out.begun {
		c.fail(w, accepted{info: c.infos[typeJSON]}, apierrors.NewInternalError(err))
		return
	}
	out.finish()
}

// answer writes an answer to a client. Answers of minGzip bytes or more are compressed if the
// client accepts that. Until the first bytes are sent, the answer can be replaced, for example by
// an error.
type answer struct {
	w      http.ResponseWriter
	accept accepted
	code   int

	begun bool
	held  []byte // bytes that are not sent yet
	zip   *gzip.Writer
	gone  error // why nothing more can be sent; nil if something can
}

// Write sends encoded data. It buffers the first bytes, up to minGzip.
func (a *answer) Write(b []byte) (int, error) {
	if !a.begun && len(a.held)+len(b) < minGzip {
		a.held = append(a.held, b...)
		return len(b), nil
	}
	if !a.begun {
		a.begin(a.accept.gzip)
	}
	if a.gone == nil {
		_, a.gone = a.to().Write(b)
	}
	if a.gone != nil {
		return 0, a.gone // makes the encoder stop
	}
	return len(b), nil
}

func (a *answer) to() io.Writer {
	if a.zip != nil {
		return a.zip
	}
	return a.w
}

// begin sends the head and the buffered data.
func (a *answer) begin(zip bool) {
	a.begun = true
	a.w.Header().Set("Content-Type", a.accept.info.MediaType)
	a.w.Header().Set("Cache-Control", "no-cache, private")
	if zip {
		a.w.Header().Set("Content-Encoding", "gzip")
		a.w.Header().Add("Vary", "Accept-Encoding")
		a.zip, _ = gzip.NewWriterLevel(a.w, gzip.BestSpeed) // the level is valid
	}
	a.w.WriteHeader(a.code)
	if len(a.held) > 0 {
		_, a.gone = a.to().Write(a.held)
	}
	a.held = nil
}

// finish sends the rest. A client that has disconnected is not an error.
func (a *answer) finish() {
	if !a.begun {
		a.begin(false)
	}
	if a.zip != nil && a.gone == nil {
		_ = a.zip.Close()
	}
}

// fail answers with a Status.
func (c *codecs) fail(w http.ResponseWriter, a accepted, err error) {
	s := statusOf(err)
	if d := s.Details; d != nil && d.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	if a.info.Serializer == nil {
		a.info = c.infos[typeJSON]
	}
	c.respond(w, a, int(s.Code), s)
}

// respondJSON answers with a value that is not an API object.
func respondJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", typeJSON)
	_ = json.NewEncoder(w).Encode(v) // fails only if the client has disconnected
}

// body returns the body of a request, which has been read, and its media type.
func body(r *http.Request) (data []byte, media string, err error) {
	there, ok := r.Body.(arrived)
	if !ok {
		return nil, "", errors.New("the body of the request was not read")
	}
	if media = r.Header.Get("Content-Type"); media == "" {
		return there.data, typeJSON, nil
	}
	parsed, _, err := mime.ParseMediaType(media)
	if err != nil {
		return nil, "", apierrors.NewBadRequest(fmt.Sprintf("Content-Type is %.100q: %v", media, err))
	}
	return there.data, parsed, nil
}

// decode decodes an object of any media type into the parameter into. The result unknown lists
// duplicate fields, and fields that the object's type does not have.
func (c *codecs) decode(data []byte, media string, into runtime.Object) (unknown []string, err error) {
	switch media {
	case typeJSON, typeYAML:
		raw, twice, err := toJSON(data, media)
		if err != nil {
			return nil, err
		}
		more, err := decodeJSON(raw, into)
		return append(twice, more...), err
	case typeProtobuf:
		if err := wirecount.Check(data[min(4, len(data)):], shapeOf(reflect.TypeOf(into)), maxFields); err != nil {
			return nil, apierrors.NewRequestEntityTooLargeError(err.Error())
		}
		if _, _, err := c.infos[typeProtobuf].Serializer.Decode(data, nil, into); err != nil {
			return nil, apierrors.NewBadRequest("protobuf: " + err.Error())
		}
		return nil, nil
	default:
		return nil, generic(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
			fmt.Sprintf("Content-Type is %.100q; want %s, %s or %s", media, typeJSON, typeYAML, typeProtobuf))
	}
}

// toJSON converts a body to JSON, within the decoding limits.
func toJSON(data []byte, media string) (raw []byte, twice []string, err error) {
	raw = data
	if media != typeJSON {
		if manifestguard.Values(data) > maxValues {
			return nil, nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the body has more than %d fields, items and lines", maxValues))
		}
		if err := manifestguard.Aliases(data, maxBody); err != nil {
			return nil, nil, apierrors.NewRequestEntityTooLargeError(err.Error())
		}
		if raw, twice, err = manifestguard.JSON(data); err != nil {
			return nil, nil, apierrors.NewBadRequest(err.Error())
		}
		for i, key := range twice {
			twice[i] = key + " is set twice"
		}
	}
	if depth := manifestguard.ShapeOf(raw).Depth; depth > maxDepth {
		return nil, nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the body is nested %d levels deep; want at most %d", depth, maxDepth))
	}
	return raw, twice, nil
}

func decodeJSON(raw []byte, into any) (unknown []string, err error) {
	if err := manifestguard.Decodable(raw, into, maxObject); err != nil {
		return nil, apierrors.NewRequestEntityTooLargeError(err.Error())
	}
	strict, err := kjson.UnmarshalStrict(raw, into)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	for _, u := range strict {
		unknown = append(unknown, u.Error())
	}
	return unknown, nil
}

var shapes sync.Map // wirecount.Shape by reflect.Type; only types of this program, so it stays small

// shapeOf returns the shape of a Kubernetes protobuf message: a runtime.Unknown that contains the
// message of a type.
func shapeOf(t reflect.Type) wirecount.Shape {
	if s, ok := shapes.Load(t); ok {
		return s.(wirecount.Shape)
	}
	s := wirecount.Shape{2: messageShape(t, 0)}
	shapes.Store(t, s)
	return s
}

// messageShape returns the shape of a type. The tags of the type say which fields are messages.
func messageShape(t reflect.Type, depth int) wirecount.Shape {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() == reflect.Map { // in an entry of a map, field 2 is the value
		return wirecount.Shape{2: messageShape(t.Elem(), depth+1)}
	}
	if t.Kind() != reflect.Struct || depth > 30 {
		return nil
	}
	out := wirecount.Shape{}
	for f := range t.Fields() {
		_, rest, ok := strings.Cut(f.Tag.Get("protobuf"), ",")
		if !ok {
			continue
		}
		digits, _, _ := strings.Cut(rest, ",")
		if n, err := strconv.ParseUint(digits, 10, 32); err == nil && holdsMessages(f.Type) {
			out[n] = messageShape(f.Type, depth+1)
		}
	}
	return out
}

func holdsMessages(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct || t.Kind() == reflect.Map
}

package localapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// get answers with one object.
func (s *Server) get(ctx context.Context, w http.ResponseWriter, k *kind, q *query) error {
	if err := s.fresh(ctx, k); err != nil {
		return err
	}
	wanted, err := parseRevision(q.values.Get("resourceVersion"))
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if _, now := s.set.Bounds(); wanted > now {
		return tooLarge(wanted, now)
	}
	it, ok := s.item(k, key{Namespace: q.objectNamespace(k), Name: q.name})
	if !ok {
		return notFound(k, q.name)
	}
	return s.answer(w, q, http.StatusOK, it.Object)
}

// objectNamespace returns the namespace of the requested object; "" for kinds without namespaces.
func (q *query) objectNamespace(k *kind) string {
	if !k.namespaced {
		return ""
	}
	return q.namespace
}

func (s *Server) item(k *kind, name key) (item, bool) {
	return s.set.Get(k, name)
}

// answer sends one object in the form that the client wants.
func (s *Server) answer(w http.ResponseWriter, q *query, code int, o object) error {
	return s.send(w, q, code, []object{o}, metav1.ListMeta{ResourceVersion: o.GetResourceVersion()}, true)
}

// send sends one object, or a list, in the form that the client wants. It takes as many bytes
// from the pool for answers as the encoded objects need, and returns them when the client has
// read the answer. Lists in JSON and protobuf are encoded one object at a time.
func (s *Server) send(w http.ResponseWriter, q *query, code int, objects []object, m metav1.ListMeta, single bool) error {
	cost := min(q.accept.cost(objects), int64(maxOutgoing/4)) // one client may have a quarter
	if !s.pools.outgoing.Take(q.client, cost) {
		return tooMany("too many bytes of answers wait for clients to read them")
	}
	defer s.pools.outgoing.Give(q.client, cost)
	out := &answer{w: w, accept: q.accept, code: code}
	err := s.encode(out, q, objects, m, single)
	switch {
	case err == nil:
		out.finish()
		return nil
	case !out.begun:
		return apierrors.NewInternalError(err)
	case out.gone == nil:
		panic(http.ErrAbortHandler) // otherwise an incomplete answer would look complete
	default:
		return nil // the client has disconnected
	}
}

func (s *Server) encode(out io.Writer, q *query, objects []object, m metav1.ListMeta, single bool) error {
	if q.accept.as == "Table" && q.accept.info.MediaType == typeJSON {
		return encodeTable(out, q.form, objects, m, metav1.IncludeObjectPolicy(q.values.Get("includeObject")), time.Now())
	}
	o, err := s.shaped(q, objects, m, single, true)
	if err != nil {
		return err
	}
	return q.accept.info.Serializer.Encode(o, out)
}

// cost returns the approximate memory for encoding objects, in bytes.
func (a accepted) cost(objects []object) int64 {
	const item, zip = 1 << 10, 1 << 20 // shallow copy of a list item; compressor
	var most, sum int64
	for _, o := range objects {
		n := int64(item)
		if s, ok := o.(interface{ Size() int }); ok {
			n += int64(s.Size())
		}
		most, sum = max(most, n), sum+n
	}
	cost := int64(minGzip) + 4*most
	switch {
	case a.info.MediaType == typeYAML: // encoded as a whole, with JSON as an intermediate step
		cost += 4 * sum
	case a.as != "Table":
		cost += int64(len(objects)) * item
	}
	if a.gzip && sum >= minGzip/2 {
		cost += zip
	}
	return cost
}

// shaped returns one object, or a list, in the form that the client wants.
func (s *Server) shaped(q *query, objects []object, meta metav1.ListMeta, single, headers bool) (runtime.Object, error) {
	switch q.accept.as {
	case "Table":
		include := metav1.IncludeObjectPolicy(q.values.Get("includeObject"))
		return tableOf(q.form, objects, meta, include, headers, time.Now())
	case "PartialObjectMetadata", "PartialObjectMetadataList":
		if single {
			return metadataOf(q.form.shown(objects[0])), nil
		}
		list := &metav1.PartialObjectMetadataList{ListMeta: meta, Items: []metav1.PartialObjectMetadata{}}
		list.TypeMeta = metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: "PartialObjectMetadataList"}
		for _, o := range objects {
			list.Items = append(list.Items, *metadataOf(q.form.shown(o)))
		}
		return list, nil
	}
	if single {
		return q.form.shown(objects[0]), nil
	}
	return listOf(q.form, objects, meta), nil
}

// listOf returns a list of a kind's own list type.
func listOf(k *kind, objects []object, m metav1.ListMeta) runtime.Object {
	list := k.list.DeepCopyObject()
	items := reflect.ValueOf(list).Elem().FieldByName("Items")
	items.Set(reflect.MakeSlice(items.Type(), len(objects), len(objects)))
	for i, o := range objects {
		v := items.Index(i)
		v.Set(reflect.ValueOf(k.shown(o)).Elem()) // shares everything the object points to
		v.FieldByName("TypeMeta").SetZero()
	}
	list.GetObjectKind().SetGroupVersionKind(k.GroupVersion().WithKind(k.Kind + "List"))
	if l, err := meta.ListAccessor(list); err == nil {
		l.SetResourceVersion(m.ResourceVersion)
		l.SetContinue(m.Continue)
		l.SetRemainingItemCount(m.RemainingItemCount)
	}
	return list
}

// next is the content of a continue token.
type next struct {
	Revision  uint64 `json:"rv"`
	Namespace string `json:"ns,omitempty"`
	Name      string `json:"n"`
}

func (n next) String() string {
	b, _ := json.Marshal(n) // always succeeds
	return base64.RawURLEncoding.EncodeToString(b)
}

func parseNext(s string) (n next, err error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(b, &n)
	}
	if err != nil {
		return n, apierrors.NewBadRequest("continue is not a token of this server")
	}
	return n, nil
}

// listed answers with a list, or with a part of it.
func (s *Server) listed(ctx context.Context, w http.ResponseWriter, k *kind, q *query) error {
	if err := s.fresh(ctx, k); err != nil {
		return err
	}
	var from next
	var err error
	if token := q.values.Get("continue"); token != "" {
		if from, err = parseNext(token); err != nil {
			return err
		}
		if v := q.values.Get("resourceVersion"); v != "" && v != "0" {
			return apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
		}
	}
	objects, revision, err := s.snapshot(ctx, k, q, from)
	if err != nil {
		return err
	}
	m := metav1.ListMeta{ResourceVersion: strconv.FormatUint(revision, 10)}
	limit, err := strconv.Atoi(q.values.Get("limit"))
	if err == nil && limit > 0 && len(objects) > limit {
		rest := int64(len(objects) - limit)
		if q.labels.Empty() && q.fields.Empty() {
			m.RemainingItemCount = &rest
		}
		objects = objects[:limit]
		last := objects[limit-1]
		m.Continue = next{revision, last.GetNamespace(), last.GetName()}.String()
	}
	return s.send(w, q, http.StatusOK, objects, m, false)
}

// snapshot returns the objects for a list, and the revision of the list: the current revision,
// the one that the query names, or the one of the query's continue token.
func (s *Server) snapshot(ctx context.Context, k *kind, q *query, from next) ([]object, uint64, error) {
	wanted, err := parseRevision(q.values.Get("resourceVersion"))
	if err != nil {
		return nil, 0, apierrors.NewBadRequest(err.Error())
	}
	if _, now := s.set.Bounds(); wanted > now {
		return nil, 0, tooLarge(wanted, now)
	}
	var at uint64 // 0 means now
	if from.Name != "" {
		at = from.Revision
	} else if q.values.Get("resourceVersionMatch") == "Exact" {
		at = wanted
	}
	all, at, ok := s.set.At(k, at)
	if !ok {
		return nil, 0, apierrors.NewResourceExpired("the continue token has expired, since too many objects have changed; start a new list")
	}
	start := key{Namespace: from.Namespace, Name: from.Name}
	out := all[:0]
	for i, o := range all {
		if i%1000 == 0 && ctx.Err() != nil {
			return nil, 0, apierrors.NewTimeoutError("the request has ended", 1)
		}
		if (from.Name == "" || keyOf(o).Compare(start) > 0) && q.selects(k, o) {
			out = append(out, o)
		}
	}
	return out, at, nil
}

// tooLarge returns the error for a request of the revision wanted, which does not exist
// yet; now is the newest revision.
func tooLarge(wanted, now uint64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", wanted, now), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return err
}

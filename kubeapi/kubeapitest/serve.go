package kubeapitest

import (
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"github.com/nodewright/nodewright/internal/patch"
	"github.com/nodewright/nodewright/kubeapi"
)

// parse makes a Request of a path such as
// /apis/group/version/namespaces/ns/resource/name/subresource.
func (s *Server) parse(r *http.Request) (kind, Request, error) {
	p := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var gv string
	switch {
	case len(p) >= 3 && p[0] == "api":
		gv, p = "/"+p[1], p[2:]
	case len(p) >= 4 && p[0] == "apis":
		gv, p = p[1]+"/"+p[2], p[3:]
	default:
		return kind{}, Request{}, apierrors.NewNotFound(group(kubeapi.Resource{}), r.URL.Path)
	}
	q := Request{At: time.Now()}
	if p[0] == "namespaces" && len(p) > 2 {
		q.Key.Namespace, p = p[1], p[2:]
	}
	k, ok := s.kinds[gv+"/"+p[0]]
	if !ok {
		return kind{}, Request{}, apierrors.NewNotFound(group(kubeapi.Resource{Name: p[0]}), r.URL.Path)
	}
	q.Resource, q.Fields = k.resource, r.URL.Query().Get("fieldSelector")
	if len(p) > 1 {
		q.Key.Name = p[1]
	}
	if len(p) > 2 {
		q.Subresource = p[2]
	}
	q.Verb = map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete"}[r.Method]
	if q.Verb == "delete" && q.Key.Name == "" {
		q.Verb = "deletecollection"
	}
	if r.Method == http.MethodGet {
		q.Verb = "list"
		if q.Key.Name != "" {
			q.Verb = "get"
		} else if w := r.URL.Query().Get("watch"); w == "true" || w == "1" {
			q.Verb = "watch"
		}
	}
	body, err := io.ReadAll(r.Body)
	q.Body = body
	return k, q, err
}

// ServeHTTP answers a call.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k, q, err := s.parse(r)
	if err != nil {
		s.answer(w, r, nil, err)
		return
	}
	s.mu.Lock()
	if s.calls++; !s.lean {
		s.requests = append(s.requests, q)
	}
	down, hang, ended, faults := s.down, s.hang, s.ended, s.faults
	s.mu.Unlock()
	if down {
		panic(http.ErrAbortHandler)
	}
	if hang {
		select {
		case <-r.Context().Done():
		case <-ended:
		}
		panic(http.ErrAbortHandler)
	}
	for _, f := range faults {
		delay, err := s.callFault(f, q)
		if delay > 0 {
			t := time.NewTimer(delay)
			select {
			case <-t.C:
			case <-r.Context().Done():
				t.Stop()
				return
			}
		}
		if err != nil {
			s.answer(w, r, nil, err)
			return
		}
	}
	if q.Verb == "watch" {
		s.watch(w, r, k, q)
		return
	}
	obj, err := s.do(k, q, r)
	s.answer(w, r, obj, err)
}

// callFault calls the function f for a request. It never makes two such calls at the same
// time.
func (s *Server) callFault(f Fault, q Request) (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f(q)
}

func (s *Server) do(k kind, q Request, r *http.Request) (runtime.Object, error) {
	var body runtime.Object
	if len(q.Body) > 0 && (q.Verb == "create" || q.Verb == "update" || q.Verb == "delete") {
		var err error
		if body, _, err = s.codecs.UniversalDeserializer().Decode(q.Body, nil, nil); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	if q.Verb == "create" {
		if out, done, err := s.handle(q, body); done {
			return out, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch q.Verb {
	case "get":
		if o := s.objects[q.Resource][q.Key]; o != nil {
			return o, nil
		}
		return nil, apierrors.NewNotFound(group(q.Resource), q.Key.Name)
	case "list":
		return s.list(k, q, r)
	case "create":
		o, ok := body.(object)
		if !ok || q.Subresource != "" {
			return nil, apierrors.NewBadRequest("no object, or not here")
		}
		if q.Resource.Namespaced {
			o.SetNamespace(q.Key.Namespace)
		}
		return s.create(q.Resource, o)
	case "update":
		o, ok := body.(object)
		if !ok {
			return nil, apierrors.NewBadRequest("no object")
		}
		return s.replace(q.Resource, o, q.Subresource)
	case "patch":
		return s.patch(k, q, r.Header.Get("Content-Type"))
	case "deletecollection":
		return s.removeAll(q)
	case "delete":
		opts := metav1.DeleteOptions{}
		if o, ok := body.(*metav1.DeleteOptions); ok {
			opts = *o
		}
		return &metav1.Status{Status: metav1.StatusSuccess}, s.remove(q.Resource, q.Key, opts)
	}
	return nil, apierrors.NewMethodNotSupported(group(q.Resource), q.Verb)
}

// handle answers calls that do not write an object.
func (s *Server) handle(q Request, body runtime.Object) (out runtime.Object, done bool, err error) {
	name := q.Resource.Name
	if q.Subresource != "" {
		name += "/" + q.Subresource
	}
	s.mu.Lock()
	fn := s.handlers[name]
	s.mu.Unlock()
	if fn != nil {
		out, err = fn(q, body)
		return out, true, err
	}
	req, ok := body.(*authenticationv1.TokenRequest)
	if !ok || name != "serviceaccounts/token" {
		return nil, false, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects[q.Resource][q.Key] == nil {
		return nil, true, apierrors.NewNotFound(group(q.Resource), q.Key.Name)
	}
	if req.Spec.ExpirationSeconds == nil {
		hour := int64(3600)
		req.Spec.ExpirationSeconds = &hour
	}
	s.created++
	req.Status.Token = fmt.Sprintf("token-%d-of-%s", s.created, q.Key)
	req.Status.ExpirationTimestamp = metav1.NewTime(time.Now().Add(time.Duration(*req.Spec.ExpirationSeconds) * time.Second))
	return req, true, nil
}

// list answers with all objects that the request selects. The caller holds s.mu.
func (s *Server) list(k kind, q Request, r *http.Request) (runtime.Object, error) {
	if k.list == nil {
		return nil, apierrors.NewMethodNotSupported(group(q.Resource), "list")
	}
	if v := r.URL.Query().Get("resourceVersion"); v != "" && v != "0" {
		if n, err := strconv.ParseUint(v, 10, 64); err != nil || n > s.revision {
			return nil, tooLarge()
		}
	}
	sel, err := fields.ParseSelector(q.Fields)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	list := k.list.DeepCopyObject()
	var items []runtime.Object
	for key, o := range s.objects[q.Resource] {
		if (q.Key.Namespace == "" || key.Namespace == q.Key.Namespace) && sel.Matches(fieldsOf(o)) {
			items = append(items, o)
		}
	}
	if err := meta.SetList(list, items); err != nil {
		return nil, err
	}
	list.(metav1.ListInterface).SetResourceVersion(strconv.FormatUint(s.revision, 10))
	return list, nil
}

func tooLarge() error {
	err := apierrors.NewTimeoutError("Too large resource version", 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return err
}

// patch changes an object. The caller holds s.mu.
func (s *Server) patch(k kind, q Request, contentType string) (runtime.Object, error) {
	old := s.objects[q.Resource][q.Key]
	if old == nil {
		return nil, apierrors.NewNotFound(group(q.Resource), q.Key.Name)
	}
	next, err := patched(k, old, q.Body, types.PatchType(contentType))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return s.replace(q.Resource, next, q.Subresource)
}

// patched returns the result of a patch of old.
func patched(k kind, old object, body []byte, as types.PatchType) (object, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(old)
	if err != nil {
		return nil, err
	}
	switch as {
	case types.JSONPatchType:
		content, err = patch.JSON(content, body)
	case types.MergePatchType:
		content, err = patch.Merge(content, body)
	case types.StrategicMergePatchType:
		var p map[string]any
		if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &p); err != nil {
			return nil, err
		}
		content, err = patch.Strategic(content, p, reflect.TypeOf(k.object))
	default:
		err = fmt.Errorf("patches of %q are not known here", as)
	}
	if err != nil {
		return nil, err
	}
	next := k.object.DeepCopyObject().(object)
	return next, runtime.DefaultUnstructuredConverter.FromUnstructured(content, next)
}

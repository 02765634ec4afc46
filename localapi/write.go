package localapi

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/localapi/internal/objects"
)

// validated reports unknown fields as the client requests: as an error, as warnings, or not
// at all.
func validated(w http.ResponseWriter, q *query, unknown []string) error {
	const most = 20
	if len(unknown) == 0 || q.validation == "Ignore" {
		return nil
	}
	if q.validation == "Strict" {
		return apierrors.NewBadRequest("strict decoding error: " + strings.Join(unknown[:min(len(unknown), most)], ", "))
	}
	for _, u := range unknown[:min(len(unknown), most)] {
		w.Header().Add("Warning", fmt.Sprintf("299 - %.300q", u))
	}
	return nil
}

// read decodes the body of a request into an object of the stored version.
func (s *Server) read(w http.ResponseWriter, r *http.Request, q *query) (object, error) {
	data, media, err := body(r)
	if err != nil {
		return nil, err
	}
	o := q.form.new()
	unknown, err := s.codecs.decode(data, media, o)
	if err != nil {
		return nil, err
	}
	if err := validated(w, q, unknown); err != nil {
		return nil, err
	}
	if err := q.named(o); err != nil {
		return nil, err
	}
	return q.form.stored(o), nil
}

// named checks that an object matches the path of the request.
func (q *query) named(o object) error {
	k := q.form
	if gvk := o.GetObjectKind().GroupVersionKind(); !gvk.Empty() && gvk != k.GroupVersionKind {
		return apierrors.NewBadRequest(fmt.Sprintf("the object is a %s of %s; the path is that of a %s of %s", gvk.Kind, gvk.GroupVersion(), k.Kind, k.GroupVersion()))
	}
	o.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	if !k.namespaced {
		o.SetNamespace("")
	} else if o.GetNamespace() == "" {
		o.SetNamespace(q.namespace)
	} else if o.GetNamespace() != q.namespace {
		return apierrors.NewBadRequest(fmt.Sprintf("the namespace of the object is %.100q; that of the path is %q", o.GetNamespace(), q.namespace))
	}
	if q.name != "" && o.GetName() == "" {
		o.SetName(q.name)
	}
	if q.name != "" && o.GetName() != q.name {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object is %.100q; that of the path is %q", o.GetName(), q.name))
	}
	return nil
}

func (s *Server) create(ctx context.Context, w http.ResponseWriter, r *http.Request, k *kind, q *query) error {
	if k.fixed != "" {
		return notAllowed(q.verb, k.fixed)
	}
	o, err := s.read(w, r, q)
	if err != nil {
		return err
	}
	o.SetManagedFields(nil)
	made, err := s.made(ctx, k, q, o, func(o object) (object, error) { return s.managers.update(k, "", nil, o, q.fieldManager()) })
	if err != nil {
		return err
	}
	return s.answer(w, q, http.StatusCreated, made)
}

// made creates a new object. manage sets its managedFields.
func (s *Server) made(ctx context.Context, k *kind, q *query, o object, manage func(object) (object, error)) (object, error) {
	if k.fixed != "" {
		return nil, notAllowed(q.verb, k.fixed)
	}
	if o.GetName() == "" && o.GetGenerateName() != "" {
		o.SetName(o.GetGenerateName()[:min(len(o.GetGenerateName()), maxPrefix)] + strings.ToLower(rand.Text()[:5]))
	}
	if o.GetResourceVersion() != "" {
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	t, err := s.clientTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer t.End()
	ch := change{Kind: k, Key: keyOf(o), Verb: objects.Create, By: q.author(), DryRun: q.dryRun}
	if s.set.Count() >= s.cfg.MaxObjects && !k.memory {
		return nil, tooMany(fmt.Sprintf("the node has %d objects, which is its limit", s.cfg.MaxObjects))
	}
	begin(o)
	if err := s.prepareCreate(k, o); err != nil {
		return nil, err
	}
	if o, err = manage(o); err != nil {
		return nil, err
	}
	if p, ok := o.(*v1.Pod); ok {
		admit(p)
		if p.Spec.NodeName == "" {
			s.place(p)
		}
	}
	if errs := append(s.check(k, "", o, nil), q.form.checked(o, nil)...); len(errs) > 0 {
		return nil, invalid(k, o.GetName(), errs)
	}
	if err := s.set.Refuses(ch); err != nil {
		return nil, err
	}
	if err := t.inNamespace(k, ch); err != nil {
		return nil, err
	}
	ch.Object = o
	r, err := t.apply(ch)
	return r.Object, err
}

// maxPrefix limits the bytes of generateName that a name begins with: a name may be a label of at
// most 63 bytes, and ends in five random letters.
const maxPrefix = 58

// author returns the author to write in an object's file.
func (q *query) author() string {
	if q.user == nil {
		return q.fieldManager()
	}
	return q.fieldManager() + " (" + q.user.Name + ")"
}

// begin sets the fields that the server gives every new object.
func begin(o object) {
	o.SetUID(newUID())
	o.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	o.SetDeletionTimestamp(nil)
	o.SetDeletionGracePeriodSeconds(nil)
	o.SetGeneration(0)
	o.SetSelfLink("")
}

// newUID returns a random UUID (RFC 9562, version 4).
func newUID() types.UID {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]))
}

func (s *Server) update(ctx context.Context, w http.ResponseWriter, r *http.Request, k *kind, q *query) error {
	o, err := s.read(w, r, q)
	if err != nil {
		return err
	}
	out, err := s.changed(ctx, k, q, func(old object) (object, error) {
		if old == nil {
			return nil, notFound(k, q.name)
		}
		return s.managed(k, q, old, o)
	})
	if err != nil {
		return err
	}
	return s.answer(w, q, http.StatusOK, out)
}

// managed restores the fields that only the server writes in an object that replaces another, and
// updates its managedFields.
func (s *Server) managed(k *kind, q *query, old, o object) (object, error) {
	if uid := o.GetUID(); uid != "" && uid != old.GetUID() {
		return nil, conflict(k, o.GetName(), "Precondition failed: UID in precondition: %v, UID in object meta: %v", uid, old.GetUID())
	}
	if v := o.GetResourceVersion(); v != "" && v != old.GetResourceVersion() {
		return nil, conflict(k, o.GetName(), "the object has been modified; please apply your changes to the latest version and try again")
	}
	if err := s.prepareUpdate(k, q.subresource, o, old); err != nil {
		return nil, err
	}
	return s.managers.update(k, q.subresource, old, o, q.fieldManager())
}

// changed replaces an object by the result of the function become, which gets the current version.
func (s *Server) changed(ctx context.Context, k *kind, q *query, become func(old object) (object, error)) (object, error) {
	t, err := s.clientTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer t.End()
	old, there := s.item(k, key{Namespace: q.objectNamespace(k), Name: q.name})
	if !there {
		return become(nil)
	}
	ch := change{Kind: k, Key: keyOf(old.Object), Verb: objects.Update, By: q.author(), DryRun: q.dryRun}
	if q.subresource == "status" {
		ch.Verb = objects.Status
	}
	if err := s.set.Refuses(ch); err != nil {
		return nil, err
	}
	o, err := become(old.Object.DeepCopyObject().(object))
	if err != nil {
		return nil, err
	}
	o.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	defaults(o)
	if p, ok := o.(*v1.Pod); ok && p.Spec.NodeName == "" && len(p.Spec.SchedulingGates) == 0 && p.DeletionTimestamp == nil && q.subresource == "" {
		s.place(p)
	}
	errs := append(s.check(k, q.subresource, o, old.Object), checkPodChange(o, old.Object, wayOf(q.subresource))...)
	if errs = append(errs, q.form.checked(o, old.Object)...); len(errs) > 0 {
		return nil, invalid(k, o.GetName(), errs)
	}
	ch.Object = o
	r, err := t.apply(ch)
	return r.Object, err
}

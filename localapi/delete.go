package localapi

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"github.com/nodewright/nodewright/localapi/internal/objects"
)

// deleteOptions returns the options of a delete request, from its body or its query.
func (s *Server) deleteOptions(r *http.Request, q *query) (*metav1.DeleteOptions, error) {
	o := &metav1.DeleteOptions{}
	data, media, err := body(r)
	if err != nil {
		return nil, err
	}
	if len(data) > 0 {
		if _, err := s.codecs.decode(data, media, o); err != nil {
			return nil, err
		}
	}
	if g := q.values.Get("gracePeriodSeconds"); g != "" {
		n, err := strconv.ParseInt(g, 10, 64)
		if err != nil {
			return nil, apierrors.NewBadRequest("gracePeriodSeconds is " + strconv.Quote(g) + "; want a number")
		}
		o.GracePeriodSeconds = &n
	}
	if p := metav1.DeletionPropagation(q.values.Get("propagationPolicy")); p != "" {
		o.PropagationPolicy = &p
	}
	return o, checkDeleteOptions(o, q)
}

// checkDeleteOptions returns an error if the options of a request are invalid.
func checkDeleteOptions(o *metav1.DeleteOptions, q *query) error {
	for _, d := range o.DryRun {
		if d != metav1.DryRunAll {
			return apierrors.NewBadRequest("dryRun is " + strconv.Quote(d) + "; want All")
		}
		q.dryRun = true
	}
	if errs := metavalidation.ValidateDeleteOptions(o); len(errs) > 0 {
		return apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("DeleteOptions").GroupKind(), "", errs)
	}
	if g := o.GracePeriodSeconds; g != nil && *g < 0 {
		*g = 1 // like the API server
	}
	return nil
}

func (s *Server) delete(ctx context.Context, w http.ResponseWriter, r *http.Request, k *kind, q *query) error {
	opts, err := s.deleteOptions(r, q)
	if err != nil {
		return err
	}
	o, gone, err := s.deleted(ctx, k, q, key{Namespace: q.objectNamespace(k), Name: q.name}, opts)
	if err != nil {
		return err
	}
	if !gone || k == s.pods {
		return s.answer(w, q, http.StatusOK, o)
	}
	done := &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess}
	done.Details = &metav1.StatusDetails{Name: q.name, Group: q.form.Group, Kind: k.resource, UID: o.GetUID()}
	s.codecs.respond(w, q.accept, http.StatusOK, done)
	return nil
}

// deleted deletes an object, and reports whether it no longer exists. An object with a
// grace period or finalizers exists for longer.
func (s *Server) deleted(ctx context.Context, k *kind, q *query, name key, opts *metav1.DeleteOptions) (object, bool, error) {
	if k.fixed != "" {
		return nil, false, notAllowed(q.verb, k.fixed)
	}
	t, err := s.clientTurn(ctx)
	if err != nil {
		return nil, false, err
	}
	defer t.End()
	ch := change{Kind: k, Key: name, Verb: objects.Delete, Grace: opts.GracePeriodSeconds, By: q.author(), DryRun: q.dryRun}
	if p := opts.Preconditions; p != nil {
		if p.UID != nil && *p.UID == "" || p.ResourceVersion != nil && *p.ResourceVersion == "" {
			return nil, false, conflict(k, name.Name, "Precondition failed: no object has an empty UID or resourceVersion")
		}
		ch.UID, ch.Version = deref(p.UID), deref(p.ResourceVersion)
	}
	ch.Policy = deref(opts.PropagationPolicy)
	if orphan := opts.OrphanDependents; orphan != nil { //nolint:staticcheck // used by old clients
		ch.Policy = metav1.DeletePropagationBackground
		if *orphan {
			ch.Policy = metav1.DeletePropagationOrphan
		}
	}
	if old, ok := s.item(k, name); ok && !ch.DryRun && objects.Policy(old.Object, ch.Policy) == metav1.DeletePropagationOrphan {
		if err := s.set.Refuses(ch); err != nil {
			return nil, false, err
		}
		if err := t.disown(old.Object); err != nil {
			return nil, false, err
		}
	}
	r, err := t.apply(ch)
	return r.Object, err == nil && r.Phase == objects.Absent, err
}

// deleteAll deletes the objects that a query's selectors and namespace select.
func (s *Server) deleteAll(ctx context.Context, w http.ResponseWriter, r *http.Request, k *kind, q *query) error {
	if k.fixed != "" || k == s.namespaces {
		return notAllowed(q.verb, "delete them one by one")
	}
	opts, err := s.deleteOptions(r, q)
	if err != nil {
		return err
	}
	objects, revision, err := s.snapshot(ctx, k, &query{namespace: q.namespace, labels: q.labels, fields: q.fields}, next{})
	if err != nil {
		return err
	}
	for _, o := range objects {
		if it, ok := s.item(k, keyOf(o)); !ok || it.Source != "" {
			continue
		}
		if _, _, err := s.deleted(ctx, k, q, keyOf(o), opts); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return s.send(w, q, http.StatusOK, objects, metav1.ListMeta{ResourceVersion: strconv.FormatUint(revision, 10)}, false)
}

// evict deletes a pod for an eviction. There are no disruption budgets on a single node.
func (s *Server) evict(ctx context.Context, w http.ResponseWriter, r *http.Request, q *query) error {
	e := &policyv1.Eviction{}
	data, media, err := body(r)
	if err != nil {
		return err
	}
	if _, err := s.codecs.decode(data, media, e); err != nil {
		return err
	}
	for _, f := range []struct {
		what, path, body string
		given            bool
	}{{"name", q.name, e.Name, true}, {"namespace", q.namespace, e.Namespace, e.Namespace != ""}} {
		if f.given && f.body != f.path {
			return apierrors.NewBadRequest(fmt.Sprintf("the %s of the Eviction is %.100q; that of the path is %q", f.what, f.body, f.path))
		}
	}
	opts := &metav1.DeleteOptions{}
	if e.DeleteOptions != nil {
		opts = e.DeleteOptions
	}
	if deref(opts.IgnoreStoreReadErrorWithClusterBreakingPotential) {
		return apierrors.NewBadRequest("ignoreStoreReadErrorWithClusterBreakingPotential is not for evictions")
	}
	if q.dryRun && len(opts.DryRun) > 1 {
		return apierrors.NewBadRequest(fmt.Sprintf("dryRun of the Eviction is %.100q; that of the request is All", opts.DryRun))
	}
	if err := checkDeleteOptions(opts, q); err != nil {
		return err
	}
	if _, _, err := s.deleted(ctx, s.pods, q, key{Namespace: q.namespace, Name: q.name}, opts); err != nil {
		return err
	}
	done := &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess, Code: http.StatusCreated}
	s.codecs.respond(w, accepted{info: q.accept.info}, http.StatusCreated, done)
	return nil
}

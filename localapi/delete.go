package localapi

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/podmeta"
)

// deleteOptions are those of a request: in its body or its query.
func (s *Server) deleteOptions(w http.ResponseWriter, r *http.Request, q *query) (*metav1.DeleteOptions, error) {
	o := &metav1.DeleteOptions{}
	data, media, err := body(w, r)
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
	for _, d := range o.DryRun {
		if d != metav1.DryRunAll {
			return nil, apierrors.NewBadRequest("dryRun is " + strconv.Quote(d) + "; want All")
		}
		q.dryRun = true
	}
	if g := o.GracePeriodSeconds; g != nil && *g < 0 {
		*g = 1 // as the API server does
	}
	return o, nil
}

func (s *Server) delete(ctx context.Context, w http.ResponseWriter, r *http.Request, k *kind, q *query) error {
	opts, err := s.deleteOptions(w, r, q)
	if err != nil {
		return err
	}
	o, gone, err := s.deleted(ctx, k, q, key{q.objectNamespace(k), q.name}, opts)
	if err != nil {
		return err
	}
	if !gone || k == s.pods {
		return s.answer(w, k, q, http.StatusOK, o)
	}
	done := &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess}
	done.Details = &metav1.StatusDetails{Name: q.name, Group: k.Group, Kind: k.resource, UID: o.GetUID()}
	s.codecs.respond(w, q.accept, http.StatusOK, done)
	return nil
}

// deleted begins the end of an object, and reports whether that was its end as well.
func (s *Server) deleted(ctx context.Context, k *kind, q *query, name key, opts *metav1.DeleteOptions) (object, bool, error) {
	if k.fixed != "" {
		return nil, false, notAllowed(q.verb, k.fixed)
	}
	if err := s.lock(ctx); err != nil {
		return nil, false, err
	}
	defer s.unlock()
	old, ok := s.item(k, name)
	if !ok {
		return nil, false, notFound(k, name.name)
	}
	if old.source != "" {
		return nil, false, forbidden(k, name.name, "it comes from %s, and can be removed only there", old.source)
	}
	if p := opts.Preconditions; p != nil {
		if p.UID != nil && *p.UID != old.object.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != old.object.GetResourceVersion() {
			return nil, false, conflict(k, name.name, "Precondition failed: the object has UID %s and resourceVersion %s", old.object.GetUID(), old.object.GetResourceVersion())
		}
	}
	if k == s.namespaces {
		return s.deleteNamespace(q, old)
	}
	grace := graceOf(old.object, opts.GracePeriodSeconds)
	o := old.object.DeepCopyObject().(object)
	if was := o.GetDeletionTimestamp(); was != nil && grace > 0 && grace >= deref(o.GetDeletionGracePeriodSeconds()) {
		return old.object, false, nil // it ends already, and no later
	}
	if grace == 0 && len(o.GetFinalizers()) == 0 {
		if q.dryRun {
			return o, true, nil
		}
		last, err := s.remove(k, old)
		s.emptied(name.namespace)
		return last, true, err
	}
	if o.GetDeletionTimestamp() != nil && grace >= deref(o.GetDeletionGracePeriodSeconds()) {
		return old.object, false, nil
	}
	at := metav1.NewTime(time.Now().Add(time.Duration(grace) * time.Second).Truncate(time.Second))
	o.SetDeletionTimestamp(&at)
	o.SetDeletionGracePeriodSeconds(&grace)
	if o.GetGeneration() > 0 {
		o.SetGeneration(o.GetGeneration() + 1)
	}
	if q.dryRun {
		return o, false, nil
	}
	o, err := s.commit(k, old, o, q.author())
	return o, false, err
}

// graceOf is how many seconds an object has to end: pods that run have some.
func graceOf(o object, asked *int64) int64 {
	p, ok := o.(*v1.Pod)
	if !ok || p.Spec.NodeName == "" || podmeta.IsTerminal(p.Status.Phase) {
		return 0
	}
	if asked != nil {
		return *asked
	}
	return max(deref(p.Spec.TerminationGracePeriodSeconds), 0)
}

// deleteNamespace ends all that is in a namespace, which goes with the last of it.
func (s *Server) deleteNamespace(q *query, old item) (object, bool, error) {
	name := old.object.GetName()
	if name == v1.NamespaceDefault {
		return nil, false, forbidden(s.namespaces, name, "this namespace may not be deleted")
	}
	o := old.object.DeepCopyObject().(*v1.Namespace)
	if q.dryRun || o.DeletionTimestamp != nil {
		return o, false, nil
	}
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	o.DeletionTimestamp, o.Status.Phase = &now, v1.NamespaceTerminating
	marked, err := s.commit(s.namespaces, old, o, q.author())
	if err != nil {
		return nil, false, err
	}
	if err := s.emptyNamespace(q, name); err != nil {
		return nil, false, err
	}
	return marked, s.emptied(name), nil
}

// emptyNamespace begins the end of all that is in a namespace.
func (s *Server) emptyNamespace(q *query, namespace string) error {
	var errs []error
	for _, k := range s.kinds {
		for _, it := range s.within(k, namespace) {
			if it.source != "" {
				continue
			}
			o := it.object.DeepCopyObject().(object)
			grace := graceOf(o, nil)
			if grace == 0 && len(o.GetFinalizers()) == 0 {
				_, err := s.remove(k, it)
				errs = append(errs, err)
			} else if o.GetDeletionTimestamp() == nil {
				at := metav1.NewTime(time.Now().Add(time.Duration(grace) * time.Second).Truncate(time.Second))
				o.SetDeletionTimestamp(&at)
				o.SetDeletionGracePeriodSeconds(&grace)
				_, err := s.commit(k, it, o, q.author())
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// within lists what a kind has in a namespace.
func (s *Server) within(k *kind, namespace string) (out []item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, it := range s.state.objects[k] {
		if k.namespaced && name.namespace == namespace {
			out = append(out, it)
		}
	}
	return out
}

// emptied forgets a namespace that is to end and has nothing any more. Who calls it
// holds the turn.
func (s *Server) emptied(namespace string) bool {
	it, ok := s.item(s.namespaces, key{name: namespace})
	if !ok || it.object.GetDeletionTimestamp() == nil {
		return false
	}
	for _, k := range s.kinds {
		if slices.ContainsFunc(s.within(k, namespace), func(it item) bool { return it.source == "" }) {
			return false
		}
	}
	_, err := s.remove(s.namespaces, it)
	return err == nil
}

// deleteAll deletes what is selected.
func (s *Server) deleteAll(ctx context.Context, w http.ResponseWriter, r *http.Request, k *kind, q *query) error {
	if k.fixed != "" || k == s.namespaces {
		return notAllowed(q.verb, "delete them one by one")
	}
	opts, err := s.deleteOptions(w, r, q)
	if err != nil {
		return err
	}
	objects, revision, err := s.snapshot(k, &query{namespace: q.namespace, labels: q.labels, fields: q.fields}, next{})
	if err != nil {
		return err
	}
	for _, o := range objects {
		if it, ok := s.item(k, keyOf(o)); !ok || it.source != "" {
			continue
		}
		if _, _, err := s.deleted(ctx, k, q, keyOf(o), opts); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	out, err := s.shaped(k, q, objects, metav1.ListMeta{ResourceVersion: strconv.FormatUint(revision, 10)}, false, true)
	if err != nil {
		return err
	}
	s.codecs.respond(w, q.accept, http.StatusOK, out)
	return nil
}

// evict deletes a pod as an eviction asks. There are no disruption budgets on one node.
func (s *Server) evict(ctx context.Context, w http.ResponseWriter, r *http.Request, q *query) error {
	e := &policyv1.Eviction{}
	data, media, err := body(w, r)
	if err != nil {
		return err
	}
	if _, err := s.codecs.decode(data, media, e); err != nil {
		return err
	}
	opts := &metav1.DeleteOptions{}
	if e.DeleteOptions != nil {
		opts = e.DeleteOptions
	}
	q.dryRun = q.dryRun || len(opts.DryRun) > 0
	if _, _, err := s.deleted(ctx, s.pods, q, key{q.namespace, q.name}, opts); err != nil {
		return err
	}
	done := &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess, Code: http.StatusCreated}
	s.codecs.respond(w, accepted{info: q.accept.info}, http.StatusCreated, done)
	return nil
}

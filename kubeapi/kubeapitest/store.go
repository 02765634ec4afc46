package kubeapitest

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/podmeta"
)

// event is a change of one object. Its objects are never changed.
type event struct {
	revision uint64
	kind     watch.EventType
	resource kubeapi.Resource
	object   object // the object after the change; for a deletion, its last state
	before   object // nil for a new one
	had, has fields.Set
}

func keyOf(r kubeapi.Resource, o object) kubeapi.Key {
	k := kubeapi.Key{Name: o.GetName()}
	if r.Namespaced {
		k.Namespace = o.GetNamespace()
	}
	return k
}

func group(r kubeapi.Resource) schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.Name}
}

// commit stores o, or removes it, and informs the watches. The caller holds s.mu.
func (s *Server) commit(r kubeapi.Resource, t watch.EventType, o object) {
	s.revision++
	o.SetResourceVersion(strconv.FormatUint(s.revision, 10))
	if s.objects[r] == nil {
		s.objects[r] = map[kubeapi.Key]object{}
	}
	k := keyOf(r, o)
	before := s.objects[r][k]
	if t == watch.Deleted {
		delete(s.objects[r], k)
	} else {
		s.objects[r][k] = o
	}
	e := event{revision: s.revision, kind: t, resource: r, object: o, before: before}
	if e.has = fieldsOf(o); before != nil {
		e.had = fieldsOf(before)
	}
	for st := range s.streams[r] {
		st.offer(e)
	}
	s.events = append(s.events, e)
	if s.history > 0 && len(s.events) > 2*s.history {
		s.oldest = s.events[len(s.events)-s.history-1].revision
		s.events = slices.Clone(s.events[len(s.events)-s.history:])
	}
}

// create stores a new object. The caller holds s.mu.
func (s *Server) create(r kubeapi.Resource, o object) (object, error) {
	if o.GetName() == "" && o.GetGenerateName() != "" {
		o.SetName(fmt.Sprintf("%s%05d", o.GetGenerateName(), s.created))
	}
	k := keyOf(r, o)
	if s.objects[r][k] != nil {
		return nil, apierrors.NewAlreadyExists(group(r), k.Name)
	}
	if o.GetUID() == "" {
		s.created++
		o.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", s.created)))
	}
	if now := metav1.NewTime(time.Now().Truncate(time.Second)); o.GetCreationTimestamp().Time.IsZero() {
		o.SetCreationTimestamp(now)
	}
	if o.GetGeneration() == 0 && r == kubeapi.Pods {
		o.SetGeneration(1)
	}
	if p, ok := o.(*v1.Pod); ok && p.Status.Phase == "" {
		p.Status.Phase, p.Status.QOSClass = v1.PodPending, podmeta.QOS(p)
	}
	s.typed(o)
	s.commit(r, watch.Added, o)
	return o, nil
}

// replace stores another version of an object. The caller holds s.mu.
func (s *Server) replace(r kubeapi.Resource, o object, subresource string) (object, error) {
	k := keyOf(r, o)
	old := s.objects[r][k]
	if old == nil {
		return nil, apierrors.NewNotFound(group(r), k.Name)
	}
	if u := o.GetUID(); u != "" && u != old.GetUID() {
		return nil, apierrors.NewConflict(group(r), k.Name, fmt.Errorf(
			"precondition failed: UID in precondition: %v, UID in object meta: %v", u, old.GetUID()))
	}
	if v := o.GetResourceVersion(); v != "" && v != old.GetResourceVersion() {
		return nil, apierrors.NewConflict(group(r), k.Name, fmt.Errorf("the object has been modified"))
	}
	o.SetUID(old.GetUID())
	o.SetCreationTimestamp(old.GetCreationTimestamp())
	o.SetDeletionTimestamp(old.GetDeletionTimestamp())
	o.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	o.SetGeneration(old.GetGeneration())
	switch subresource {
	case "status", "approval":
		copyField(o, old, "Spec")
		o.SetOwnerReferences(old.GetOwnerReferences())
	default:
		copyField(o, old, "Status")
		if !sameField(o, old, "Spec") {
			o.SetGeneration(old.GetGeneration() + 1)
		}
	}
	o.SetResourceVersion(old.GetResourceVersion())
	s.typed(o)
	if equality.Semantic.DeepEqual(o, old) {
		return old, nil // the revision does not change, as with a real server
	}
	s.commit(r, watch.Modified, o)
	return o, nil
}

func field(o object, name string) reflect.Value { return reflect.ValueOf(o).Elem().FieldByName(name) }

func copyField(target, source object, name string) {
	if f := field(target, name); f.IsValid() {
		f.Set(field(source, name))
	}
}

func sameField(a, b object, name string) bool {
	fa, fb := field(a, name), field(b, name)
	return !fa.IsValid() || equality.Semantic.DeepEqual(fa.Interface(), fb.Interface())
}

// remove deletes an object; a pod gets its grace period. The caller holds s.mu.
func (s *Server) remove(r kubeapi.Resource, k kubeapi.Key, opts metav1.DeleteOptions) error {
	old := s.objects[r][k]
	if old == nil {
		return apierrors.NewNotFound(group(r), k.Name)
	}
	if p := opts.Preconditions; p != nil {
		if p.UID != nil && *p.UID != old.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != old.GetResourceVersion() {
			return apierrors.NewConflict(group(r), k.Name, fmt.Errorf("the precondition %v does not hold", p))
		}
	}
	next := old.DeepCopyObject().(object)
	if p, ok := next.(*v1.Pod); ok {
		grace := int64(30)
		if g := p.Spec.TerminationGracePeriodSeconds; g != nil {
			grace = *g
		}
		if g := opts.GracePeriodSeconds; g != nil {
			grace = *g
		}
		if p.Spec.NodeName == "" || podmeta.IsTerminal(p.Status.Phase) {
			grace = 0
		}
		if d := p.DeletionGracePeriodSeconds; p.DeletionTimestamp != nil && d != nil && grace >= *d && grace > 0 {
			return nil
		}
		if grace > 0 {
			at := metav1.NewTime(time.Now().Add(time.Duration(grace) * time.Second).Truncate(time.Second))
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, &grace
			p.Generation++
			s.commit(r, watch.Modified, next)
			return nil
		}
	}
	s.commit(r, watch.Deleted, next)
	return nil
}

// removeAll deletes all objects that are selected. The caller holds s.mu.
func (s *Server) removeAll(q Request) (runtime.Object, error) {
	selector, err := fields.ParseSelector(q.Fields)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	for k, o := range s.objects[q.Resource] {
		if (q.Key.Namespace == "" || q.Key.Namespace == k.Namespace) && selector.Matches(fieldsOf(o)) {
			if err := s.remove(q.Resource, k, metav1.DeleteOptions{}); err != nil {
				return nil, err
			}
		}
	}
	return &metav1.Status{Status: metav1.StatusSuccess}, nil
}

// fieldsOf returns the fields for field selectors.
func fieldsOf(o object) fields.Set {
	set := fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()}
	switch o := o.(type) {
	case *v1.Pod:
		set["spec.nodeName"], set["status.phase"] = o.Spec.NodeName, string(o.Status.Phase)
	case *resourcev1.ResourceSlice:
		set["spec.driver"] = o.Spec.Driver
		if o.Spec.NodeName != nil {
			set["spec.nodeName"] = *o.Spec.NodeName
		}
	case *v1.Event:
		set["involvedObject.name"], set["involvedObject.uid"] = o.InvolvedObject.Name, string(o.InvolvedObject.UID)
	}
	return set
}

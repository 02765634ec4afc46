package objects

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nodewright/nodewright/podmeta"
)

// effects are the actions that carry out a decision.
type effects uint8

const (
	// note stores the entry without a new revision, since the change is not visible to clients.
	note effects = 1 << iota
	// show gives the object a new revision, and notifies watchers.
	show
	// another notifies watchers first that the previous object is gone.
	another
	// save writes the object's file.
	save
	// erase removes the object's file.
	erase
)

// decide returns the new entry for an object after a change, and the actions to carry out.
// Without actions the object is unchanged. An entry without an Object does not exist. ns is the
// phase of the object's namespace; Live for an object without one. decide modifies none of its
// arguments except ch.Object.
func decide(cur Entry, ns Phase, ch Change, now time.Time) (Entry, effects, error) {
	if err := refuse(cur, ns, ch); err != nil {
		return cur, 0, err
	}
	switch ch.Verb {
	case Create:
		return created(cur, ch)
	case Update:
		return updated(cur, ch)
	case Status:
		return reported(cur, ch)
	case Replace:
		return Entry{Object: ch.Object, File: ch.Read.Name, At: ch.Read.At}, another | show | save, nil
	case Delete:
		return deleted(cur, ch, now)
	case Gone:
		return gone(cur, ch, now)
	case Show:
		return shown(cur, ch, now)
	case Hide:
		return hidden(cur, ch, now)
	case Keep:
		if cur.Origin != Owned || cur.File != "" {
			return cur, 0, nil
		}
		return cur, note | save, nil
	default:
		panic(fmt.Sprintf("objects: verb %d", ch.Verb))
	}
}

func (ch *Change) resource() schema.GroupResource {
	t := ch.Kind.Type()
	return schema.GroupResource{Group: t.Group, Resource: t.Resource}
}

// refuse returns an error if a change is impossible, whatever its content: a new object exists
// already, a changed one does not exist or has another UID, or the actor may not change it.
func refuse(cur Entry, ns Phase, ch Change) error {
	switch {
	case ch.Verb == Create:
		return refuseNew(cur, ns, ch)
	case ch.Verb == Show:
		return nil
	case cur.Phase() == Absent:
		return apierrors.NewNotFound(ch.resource(), ch.Key.Name)
	}
	if cur.Origin == Mirrored && ch.Actor == Client {
		what := "changed"
		if ch.Verb == Delete {
			what = "removed"
		}
		return apierrors.NewForbidden(ch.resource(), ch.Key.Name, fmt.Errorf("it comes from %s, and can be %s only there", cur.Source, what))
	}
	if uid := cur.Object.GetUID(); ch.UID != "" && ch.UID != uid && (ch.Verb != Status || cur.Next == nil || cur.Next.GetUID() != ch.UID) {
		return apierrors.NewConflict(ch.resource(), ch.Key.Name, fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", ch.UID, uid)) //nolint:staticcheck // the API server's text
	}
	if v := cur.Object.GetResourceVersion(); ch.Version != "" && ch.Version != v {
		return apierrors.NewConflict(ch.resource(), ch.Key.Name, fmt.Errorf("Precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v", ch.Version, v)) //nolint:staticcheck // the API server's text
	}
	return nil
}

func refuseNew(cur Entry, ns Phase, ch Change) error {
	unfiled := ch.Actor == File && cur.Origin == Owned && cur.File == "" // an implicit namespace, which has no file
	switch {
	case cur.Phase() != Absent && !unfiled:
		err := apierrors.NewAlreadyExists(ch.resource(), ch.Key.Name)
		if cur.Phase() == Ending {
			err.ErrStatus.Message = "object is being deleted: " + err.ErrStatus.Message
		}
		return err
	case ns == Ending && ch.Actor != File:
		return terminating(ch)
	case ns == Absent && ch.Kind.Type().Memory:
		return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, ch.Key.Namespace)
	default:
		return nil
	}
}

func created(cur Entry, ch Change) (Entry, effects, error) {
	next := Entry{Object: ch.Object, File: ch.Read.Name, At: ch.Read.At}
	if cur.Object != nil && !ch.Read.Complete {
		KeepServers(next.Object, cur.Object)
	}
	switch {
	case ch.Kind.Type().Memory:
		next.Origin = Fleeting
		return next, show, nil
	case ch.Read.Complete || ch.Actor == Agent:
		return next, show, nil
	default:
		return next, show | save, nil
	}
}

// terminating returns the error for a new object in a namespace that is being deleted.
// Controllers check its cause.
func terminating(ch Change) error {
	err := apierrors.NewForbidden(ch.resource(), ch.Key.Name, fmt.Errorf("unable to create new content in namespace %s because it is being terminated", ch.Key.Namespace))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: v1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated", ch.Key.Namespace), Field: "metadata.namespace",
	})
	return err
}

func updated(cur Entry, ch Change) (Entry, effects, error) {
	next, o := cur, ch.Object
	next.Object = o
	if ch.Actor == File {
		next.File, next.At = ch.Read.Name, ch.Read.At
	}
	KeepServers(o, cur.Object)
	if spec := Field(o, "Spec"); spec.IsValid() && !equality.Semantic.DeepEqual(spec.Interface(), Field(cur.Object, "Spec").Interface()) {
		raise(o)
	}
	if Unchanged(o, cur.Object) {
		next.Object = cur.Object
		if cur.At != next.At || cur.File != next.File {
			return next, note, nil
		}
		return cur, 0, nil
	}
	if errs := append(unending(cur, o), sameEnd(cur, o)...); len(errs) > 0 {
		return cur, 0, apierrors.NewInvalid(ch.Kind.Type().GroupKind(), ch.Key.Name, errs)
	}
	do := show
	if next.Origin == Owned && (ch.Actor == Client || ch.Actor == Clock) {
		do |= save
	}
	return settled(cur, next, do)
}

// reported stores a status. The agent's status of a pod is written to disk only if it is final;
// other statuses are reported again after a restart.
func reported(cur Entry, ch Change) (Entry, effects, error) {
	next := cur
	if cur.Next != nil && ch.UID == cur.Next.GetUID() { // the pod waits for the end of its predecessor
		next.Next = withStatus(cur.Next, ch)
		return next, note, nil
	}
	next.Object = withStatus(cur.Object, ch)
	if Unchanged(next.Object, cur.Object) {
		return cur, 0, nil
	}
	if errs := sameEnd(cur, next.Object); len(errs) > 0 {
		return cur, 0, apierrors.NewInvalid(ch.Kind.Type().GroupKind(), ch.Key.Name, errs)
	}
	do := show
	if next.Origin == Owned && (ch.Actor != Agent || terminal(next.Object)) {
		do |= save
	}
	return next, do, nil
}

// withStatus returns an object with the status of a change.
func withStatus(o Object, ch Change) Object {
	next := shallow(o)
	status := Field(ch.Object, "Status")
	if p, ok := ch.Object.(*v1.Pod); ok && ch.Actor == Agent {
		merged := Merge(p.Status, &o.(*v1.Pod).Status)
		status = reflect.ValueOf(merged)
	}
	Field(next, "Status").Set(status)
	if ch.Actor == Client {
		next.SetManagedFields(ch.Object.GetManagedFields())
	}
	return next
}

// shallow returns a copy of an object that shares everything that its fields point to.
func shallow(o Object) Object {
	c := reflect.New(reflect.TypeOf(o).Elem())
	c.Elem().Set(reflect.ValueOf(o).Elem())
	return c.Interface().(Object)
}

func terminal(o Object) bool {
	p, ok := o.(*v1.Pod)
	return ok && podmeta.IsTerminal(p.Status.Phase)
}

// sameEnd rejects a change of the phase of a finished pod. A pod from a manifest may start again
// with the same UID.
func sameEnd(cur Entry, o Object) field.ErrorList {
	p, ok := o.(*v1.Pod)
	if !ok || cur.Origin == Mirrored || !terminal(cur.Object) {
		return nil
	}
	if was := cur.Object.(*v1.Pod).Status.Phase; p.Status.Phase != was {
		return field.ErrorList{field.Invalid(field.NewPath("status", "phase"), p.Status.Phase, fmt.Sprintf("the pod has finished; want %s", was))}
	}
	return nil
}

// unending rejects changes of the spec and new finalizers for an object that is being deleted.
func unending(cur Entry, o Object) (errs field.ErrorList) {
	if cur.Phase() != Ending {
		return nil
	}
	for _, f := range o.GetFinalizers() {
		if !slices.Contains(cur.Object.GetFinalizers(), f) {
			errs = append(errs, field.Forbidden(field.NewPath("metadata", "finalizers"), fmt.Sprintf("no new finalizers can be added if the object is being deleted, found new finalizer %q", f)))
		}
	}
	v, was := reflect.ValueOf(o).Elem(), reflect.ValueOf(cur.Object).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if name != "TypeMeta" && name != "ObjectMeta" && name != "Status" && !equality.Semantic.DeepEqual(v.Field(i).Interface(), was.Field(i).Interface()) {
			errs = append(errs, field.Forbidden(field.NewPath(strings.ToLower(name[:1])+name[1:]), "the object is being deleted: only its metadata and status may be changed"))
		}
	}
	return errs
}

// deleted starts the deletion of an object. If the object is being deleted already, a shorter
// grace period moves the end to an earlier time; a longer one has no effect.
func deleted(cur Entry, ch Change, now time.Time) (Entry, effects, error) {
	_, isNamespace := cur.Object.(*v1.Namespace)
	switch {
	case cur.Origin == Mirrored:
		return cur, 0, nil
	case isNamespace && ch.Key.Name == v1.NamespaceDefault:
		return cur, 0, apierrors.NewForbidden(ch.resource(), ch.Key.Name, errors.New("this namespace may not be deleted"))
	case isNamespace && cur.Phase() == Ending:
		return cur, 0, nil
	}
	grace := graceOf(cur.Object, ch.Grace)
	waits := waiting(cur.Object.GetFinalizers(), Policy(cur.Object, ch.Policy))
	if ch.Wait != "" && cur.Phase() == Live && !slices.Contains(waits, ch.Wait) {
		waits = append(waits, ch.Wait)
	}
	next := cur
	if was := cur.Object.GetDeletionGracePeriodSeconds(); cur.Phase() != Ending || was == nil || grace < *was {
		next.Object = ending(cur.Object, grace, now)
	} else if slices.Equal(waits, cur.Object.GetFinalizers()) {
		return cur, 0, nil
	} else {
		next.Object = cur.Object.DeepCopyObject().(Object)
	}
	next.Object.SetFinalizers(waits)
	if n, ok := next.Object.(*v1.Namespace); ok { // it ends when it is empty
		n.DeletionGracePeriodSeconds, n.Status.Phase = nil, v1.NamespaceTerminating
	}
	return settled(cur, next, show|save)
}

// Policy returns how the dependents of an object are deleted: as requested, or else as its
// finalizers say.
func Policy(o Object, asked metav1.DeletionPropagation) metav1.DeletionPropagation {
	switch fs := o.GetFinalizers(); {
	case asked != "":
		return asked
	case slices.Contains(fs, metav1.FinalizerOrphanDependents):
		return metav1.DeletePropagationOrphan
	case slices.Contains(fs, metav1.FinalizerDeleteDependents):
		return metav1.DeletePropagationForeground
	default:
		return metav1.DeletePropagationBackground
	}
}

// waiting returns the finalizers of an object that is deleted with a policy. With the policy
// Orphan the object does not wait, since its dependents have already lost their references to
// it.
func waiting(finalizers []string, policy metav1.DeletionPropagation) []string {
	foreground := policy == metav1.DeletePropagationForeground
	out := slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents && !foreground
	})
	if foreground && !slices.Contains(out, metav1.FinalizerDeleteDependents) {
		out = append(out, metav1.FinalizerDeleteDependents)
	}
	return out
}

// ending returns an object that is being deleted and has grace seconds left.
func ending(o Object, grace int64, now time.Time) Object {
	o = o.DeepCopyObject().(Object)
	if o.GetDeletionTimestamp() == nil {
		raise(o)
	}
	at := metav1.NewTime(now.Add(time.Duration(grace) * time.Second).Truncate(time.Second))
	o.SetDeletionTimestamp(&at)
	o.SetDeletionGracePeriodSeconds(&grace)
	return o
}

// raise increases the generation, since the desired state has changed.
func raise(o Object) {
	if o.GetGeneration() > 0 {
		o.SetGeneration(o.GetGeneration() + 1)
	}
}

// graceOf returns the grace period of an object in seconds. Only running pods have one.
func graceOf(o Object, asked *int64) int64 {
	p, ok := o.(*v1.Pod)
	switch {
	case !ok || p.Spec.NodeName == "" || podmeta.IsTerminal(p.Status.Phase):
		return 0
	case asked != nil:
		return *asked
	case p.Spec.TerminationGracePeriodSeconds != nil:
		return max(*p.Spec.TerminationGracePeriodSeconds, 0)
	default:
		return 0
	}
}

// settled returns the decision for the new entry next. If its object is being deleted, with a
// grace period of zero and no finalizers, the decision is to remove it.
func settled(cur, next Entry, do effects) (Entry, effects, error) {
	grace := next.Object.GetDeletionGracePeriodSeconds()
	if next.Phase() != Ending || grace == nil || *grace > 0 || len(next.Object.GetFinalizers()) > 0 {
		return next, do, nil
	}
	return absent(cur)
}

// absent returns the decision to remove an object.
func absent(cur Entry) (Entry, effects, error) {
	if cur.File == "" {
		return Entry{}, show, nil
	}
	return Entry{}, show | erase, nil
}

// gone removes an object of which nothing is left on the node, unless it has
// finalizers.
func gone(cur Entry, ch Change, now time.Time) (Entry, effects, error) {
	switch {
	case ch.Actor == File:
		return Entry{}, show, nil
	case cur.Next != nil:
		return Entry{Object: cur.Next, Origin: cur.Origin, Source: cur.Source}, another | show, nil
	case cur.Origin == Mirrored && cur.Phase() != Ending:
		return cur, 0, nil
	case cur.Origin != Owned:
		return absent(cur)
	}
	next := cur
	next.Object = ending(cur.Object, 0, now)
	return settled(cur, next, show|save)
}

// shown stores an object from a manifest, unless an object of another origin has its name. A pod
// that replaces another pod waits until the other pod is removed.
func shown(cur Entry, ch Change, now time.Time) (Entry, effects, error) {
	o := ch.Object
	next := Entry{Object: o, Origin: Mirrored, Source: ch.Source}
	if cur.Phase() == Absent {
		return next, show, nil
	}
	if cur.Origin != Mirrored || cur.Source != ch.Source {
		return cur, 0, nil
	}
	_, isPod := o.(*v1.Pod)
	if isPod && o.GetUID() != cur.Object.GetUID() && !terminal(cur.Object) {
		if cur.Next != nil && cur.Next.GetUID() == o.GetUID() {
			same(o, cur.Next)
		}
		next, do, err := hidden(cur, ch, now)
		next.Next = o
		return next, do | note, err
	}
	if isPod && o.GetUID() != cur.Object.GetUID() {
		return next, another | show, nil
	}
	same(o, cur.Object)
	if Unchanged(o, cur.Object) {
		return cur, 0, nil
	}
	return next, show, nil
}

// same copies from old to o the fields that a manifest does not have: UID, creation time and, for a
// pod, the status. Both are versions of one object; o was just read from the manifest.
func same(o, old Object) {
	o.SetUID(old.GetUID())
	o.SetCreationTimestamp(old.GetCreationTimestamp())
	if p, ok := o.(*v1.Pod); ok {
		p.Status = old.(*v1.Pod).Status
	}
	o.GetObjectKind().SetGroupVersionKind(old.GetObjectKind().GroupVersionKind())
}

// hidden removes an object whose manifest is gone. A pod is removed when the agent reports that
// nothing is left of it.
func hidden(cur Entry, ch Change, now time.Time) (Entry, effects, error) {
	if cur.Origin != Mirrored || cur.Source != ch.Source {
		return cur, 0, nil
	}
	p, ok := cur.Object.(*v1.Pod)
	if !ok || terminal(p) {
		return absent(cur)
	}
	next := cur
	next.Next = nil
	if cur.Phase() == Ending {
		return next, note, nil
	}
	var grace int64
	if g := p.Spec.TerminationGracePeriodSeconds; g != nil {
		grace = max(*g, 0)
	}
	next.Object = ending(p, grace, now)
	return next, show, nil
}

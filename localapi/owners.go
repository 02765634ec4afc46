package localapi

import (
	"slices"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nodewright/nodewright/localapi/internal/objects"
)

// dependentsOf goes on with the objects that name an object as their owner, after a change of that.
func (t *turn) dependentsOf(c outcome) {
	uid := c.Object.GetUID()
	switch {
	case c.Phase == objects.Absent:
		for _, at := range t.s.set.Dependents(uid) {
			t.collect(at)
		}
		for _, r := range c.Object.GetOwnerReferences() {
			if k, name := t.s.owner(c.Object, r); k != nil {
				t.unblock(objects.Ref{Kind: k, Key: name})
			}
		}
	case c.Phase == objects.Ending && waits(c.Object):
		for _, at := range t.s.set.Dependents(uid) {
			t.collect(at)
		}
		t.unblock(objects.Ref{Kind: c.k, Key: keyOf(c.Object)})
	case c.Phase == objects.Live && len(c.Object.GetOwnerReferences()) > 0:
		t.collect(objects.Ref{Kind: c.k, Key: keyOf(c.Object)})
	}
}

// waits reports whether an object that ends waits for its dependents.
func waits(o object) bool {
	return slices.Contains(o.GetFinalizers(), metav1.FinalizerDeleteDependents)
}

// policyFor is how a dependent ends: after its own dependents if an owner waits for it, unless one of those waits
// already, as in a circle.
func (t *turn) policyFor(o object) metav1.DeletionPropagation {
	deps := t.s.set.Dependents(o.GetUID())
	circle := slices.ContainsFunc(deps, func(at objects.Ref) bool {
		e, ok := t.s.set.Get(at.Kind, at.Key)
		return ok && e.Phase() == objects.Ending && waits(e.Object)
	})
	if len(deps) == 0 || circle {
		return metav1.DeletePropagationBackground
	}
	return metav1.DeletePropagationForeground
}

// owner is where the owner of an object is to be; nil for a kind that is not served, and for an owner in a namespace of
// an object in none: nobody knows whether those are there.
func (s *Server) owner(o object, r metav1.OwnerReference) (*kind, key) {
	gv, err := schema.ParseGroupVersion(r.APIVersion)
	if err != nil {
		return nil, key{}
	}
	for _, k := range s.kinds {
		if k.GroupKind() != gv.WithKind(r.Kind).GroupKind() {
			continue
		}
		switch {
		case !k.namespaced:
			return k, key{Name: r.Name}
		case o.GetNamespace() != "":
			return k, key{Namespace: o.GetNamespace(), Name: r.Name}
		}
	}
	return nil, key{}
}

// collect deletes an object whose owners are all gone, or wait for it; of others it drops the references to those.
func (t *turn) collect(at objects.Ref) {
	e, ok := t.s.set.Get(at.Kind, at.Key)
	if !ok || e.Origin == objects.Mirrored || e.Phase() != objects.Live {
		return
	}
	refs, waited := e.Object.GetOwnerReferences(), false
	left := slices.DeleteFunc(slices.Clone(refs), func(r metav1.OwnerReference) bool {
		k, name := t.s.owner(e.Object, r)
		if k == nil {
			return false
		}
		o, ok := t.s.item(k, name)
		waiting := ok && o.Phase() == objects.Ending && waits(o.Object)
		waited = waited || waiting
		return waiting || !ok || o.Object.GetUID() != r.UID
	})
	switch {
	case len(left) == len(refs):
	case len(left) > 0:
		t.owned(e, at, left)
	default:
		t.s.cfg.Log.Info("delete an object whose owners are gone", zap.String("kind", at.Kind.Type().Kind),
			zap.String("namespace", at.Key.Namespace), zap.String("name", at.Key.Name))
		ch := change{Kind: at.Kind, Key: at.Key, Verb: objects.Delete}
		if waited {
			ch.Policy = t.policyFor(e.Object)
		}
		t.attempt(ch)
	}
}

// owned gives an object other owners.
func (t *turn) owned(e item, at objects.Ref, refs []metav1.OwnerReference) {
	o := e.Object.DeepCopyObject().(object)
	o.SetOwnerReferences(refs)
	t.attempt(change{Kind: at.Kind, Key: at.Key, Verb: objects.Update, Object: o})
}

// disown takes an object out of the owners of its dependents.
func (t *turn) disown(o object) {
	for _, at := range t.s.set.Dependents(o.GetUID()) {
		if e, ok := t.s.set.Get(at.Kind, at.Key); ok && e.Origin != objects.Mirrored {
			t.owned(e, at, slices.DeleteFunc(slices.Clone(e.Object.GetOwnerReferences()), func(r metav1.OwnerReference) bool { return r.UID == o.GetUID() }))
		}
	}
}

// unblock has an object go on ending that waits for dependents, if none is left that it has to wait for.
func (t *turn) unblock(at objects.Ref) {
	e, ok := t.s.set.Get(at.Kind, at.Key)
	if !ok || e.Phase() != objects.Ending || !waits(e.Object) {
		return
	}
	uid := e.Object.GetUID()
	blocks := func(r metav1.OwnerReference) bool { return r.UID == uid && deref(r.BlockOwnerDeletion) }
	for _, d := range t.s.set.Dependents(uid) {
		if dep, ok := t.s.set.Get(d.Kind, d.Key); ok && d != at && dep.Origin != objects.Mirrored && slices.ContainsFunc(dep.Object.GetOwnerReferences(), blocks) {
			return
		}
	}
	o := e.Object.DeepCopyObject().(object)
	o.SetFinalizers(slices.DeleteFunc(o.GetFinalizers(), func(f string) bool { return f == metav1.FinalizerDeleteDependents }))
	t.attempt(change{Kind: at.Kind, Key: at.Key, Verb: objects.Update, Object: o})
}

package localapi

import (
	"slices"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/localapi/internal/objects"
)

// ahead deletes the dependents of an object before ch removes the object itself. A crash in
// between then leaves no dependent without its owner, and the request can be repeated.
func (t *turn) ahead(ch change) error {
	e, ok := t.s.set.Get(ch.Kind, ch.Key)
	if !ok || ch.DryRun {
		return nil
	}
	uid := e.Object.GetUID()
	deps := t.s.set.Dependents(uid)
	if len(deps) == 0 || t.going[uid] { // directly or through others, the object depends on itself
		return nil
	}
	dry := ch
	dry.DryRun = true
	if r, err := t.Apply(dry); err != nil || r.Phase != objects.Absent {
		return nil // the change itself returns the error
	}
	t.going[uid] = true
	defer delete(t.going, uid)
	for _, at := range deps {
		if err := t.collect(at, uid); err != nil {
			return err
		}
	}
	return nil
}

// relatives handles the owners and dependents of a changed object.
func (t *turn) relatives(c outcome) {
	uid := c.Object.GetUID()
	switch {
	case c.Phase == objects.Absent:
		for _, at := range t.s.set.Dependents(uid) { // for an owner whose file a person has removed, or whose file has another object now
			t.logged(at, t.collect(at, uid))
		}
		for _, r := range c.Object.GetOwnerReferences() {
			if k, name := t.s.owner(c.Object, r); k != nil {
				t.unblock(objects.Ref{Kind: k, Key: name})
			}
		}
	case c.Phase == objects.Ending:
		if waits(c.Object) {
			for _, at := range t.s.set.Dependents(uid) {
				t.logged(at, t.collect(at, ""))
			}
		}
		t.unblock(objects.Ref{Kind: c.k, Key: keyOf(c.Object)})
	case c.Phase == objects.Live && len(c.Object.GetOwnerReferences()) > 0:
		at := objects.Ref{Kind: c.k, Key: keyOf(c.Object)}
		t.logged(at, t.collect(at, ""))
	}
}

// waits reports whether an object that is being deleted waits for its dependents.
func waits(o object) bool {
	return slices.Contains(o.GetFinalizers(), metav1.FinalizerDeleteDependents)
}

// policyFor returns the deletion policy for o, whose owner waits for the end of o. It is
// Foreground, so that o waits for its own dependents. It is Background if o has no dependents,
// or if one of them waits already, as in a cycle of owners.
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

// owner returns the kind and name of an object's owner. It returns nil if it cannot be known
// whether the owner exists: if its kind is not served, or if it is namespaced and the object is
// not.
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
			return k.kept(), key{Name: r.Name}
		case o.GetNamespace() != "":
			return k.kept(), key{Namespace: o.GetNamespace(), Name: r.Name}
		}
	}
	return nil, key{}
}

// collect deletes an object if each of its owners is gone or waits for the object's end. If
// only some of them are, it removes their references from the object. gone is the UID of an
// owner that counts as gone; "" for none.
func (t *turn) collect(at objects.Ref, gone types.UID) error {
	e, ok := t.s.set.Get(at.Kind, at.Key)
	if !ok || e.Origin == objects.Mirrored || e.Phase() != objects.Live {
		return nil
	}
	refs, waited := e.Object.GetOwnerReferences(), false
	known := t.s.allShown()
	left := slices.DeleteFunc(slices.Clone(refs), func(r metav1.OwnerReference) bool {
		k, name := t.s.owner(e.Object, r)
		if k == nil || r.UID == gone {
			return k != nil
		}
		o, ok := t.s.item(k, name)
		waiting := ok && o.Phase() == objects.Ending && waits(o.Object)
		waited = waited || waiting
		return waiting || known && (!ok || o.Object.GetUID() != r.UID)
	})
	switch {
	case len(left) == len(refs):
		return nil
	case len(left) > 0:
		return t.owned(e, at, left)
	}
	ch := change{Kind: at.Kind, Key: at.Key, Verb: objects.Delete}
	if waited {
		ch.Policy = t.policyFor(e.Object)
	}
	t.s.cfg.Log.Info("deleting object whose owners are gone", zap.String("kind", at.Kind.Type().Kind),
		zap.String("namespace", at.Key.Namespace), zap.String("name", at.Key.Name))
	return t.consequence(ch)
}

// owned replaces the owner references of an object.
func (t *turn) owned(e item, at objects.Ref, refs []metav1.OwnerReference) error {
	o := e.Object.DeepCopyObject().(object)
	o.SetOwnerReferences(refs)
	return t.consequence(change{Kind: at.Kind, Key: at.Key, Verb: objects.Update, Object: o})
}

// disown removes an object from the owner references of its dependents.
func (t *turn) disown(o object) error {
	for _, at := range t.s.set.Dependents(o.GetUID()) {
		e, ok := t.s.set.Get(at.Kind, at.Key)
		if !ok || e.Origin == objects.Mirrored {
			continue
		}
		left := slices.DeleteFunc(slices.Clone(e.Object.GetOwnerReferences()), func(r metav1.OwnerReference) bool { return r.UID == o.GetUID() })
		if err := t.owned(e, at, left); err != nil {
			return err
		}
	}
	return nil
}

// unblock continues the deletion of an object that waits for the end of its dependents or users,
// if none of these is left.
func (t *turn) unblock(at objects.Ref) {
	e, ok := t.s.set.Get(at.Kind, at.Key)
	if !ok || e.Phase() != objects.Ending {
		return
	}
	left := slices.DeleteFunc(slices.Clone(e.Object.GetFinalizers()), func(f string) bool {
		return f == metav1.FinalizerDeleteDependents && !t.blocked(at, e.Object.GetUID()) || f == protection(e.Object) && !t.s.mayBeUsed(e.Object)
	})
	if len(left) == len(e.Object.GetFinalizers()) {
		return
	}
	o := e.Object.DeepCopyObject().(object)
	o.SetFinalizers(left)
	t.attempt(change{Kind: at.Kind, Key: at.Key, Verb: objects.Update, Object: o})
}

// blocked reports whether an object has a dependent for whose end it has to wait.
func (t *turn) blocked(at objects.Ref, uid types.UID) bool {
	blocks := func(r metav1.OwnerReference) bool { return r.UID == uid && deref(r.BlockOwnerDeletion) }
	for _, d := range t.s.set.Dependents(uid) {
		if dep, ok := t.s.set.Get(d.Kind, d.Key); ok && d != at && dep.Origin != objects.Mirrored && slices.ContainsFunc(dep.Object.GetOwnerReferences(), blocks) {
			return true
		}
	}
	return false
}

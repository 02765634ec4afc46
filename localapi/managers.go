package localapi

import (
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/nodewright/nodewright/internal/schema"
	"github.com/nodewright/nodewright/localapi/internal/fields"
)

// managers track which client owns which fields of an object (managedFields), by kind and
// subresource.
type managers map[managerKey]*fields.Manager

type managerKey struct {
	k           *kind
	subresource string
}

func newManagers(kinds []*kind) managers {
	var types []any
	kinds = slices.DeleteFunc(slices.Clone(kinds), func(k *kind) bool { return k.view != nil })
	for _, k := range kinds {
		types = append(types, k.empty)
	}
	parser := schema.Merge(types...)
	out := managers{}
	for _, k := range kinds {
		for _, sub := range append([]string{""}, k.subresources...) {
			out[managerKey{k, sub}] = fields.New(fields.Config{
				Type: parser.Type(schema.Of(k.goType()).Name), APIVersion: k.GroupVersion().String(), Subresource: sub, Ignored: ignored(k, sub),
			})
		}
	}
	return out
}

// ignored returns the fields that a writer cannot change: values that it sends for them
// are dropped.
func ignored(k *kind, subresource string) (out []fieldpath.Path) {
	names := []string{"metadata", "spec"}
	switch {
	case subresource == "" && k.Kind == "ResourceClaim": // only the server allocates claims
		names = nil
	case subresource == "":
		names = []string{"status"}
	case subresource != "status":
		names = []string{"metadata", "status"}
	}
	for _, n := range names {
		if schema.Of(k.goType()).Field(n) != nil {
			out = append(out, fieldpath.MakePathOrDie(n))
		}
	}
	return out
}

// update records in the managedFields of o that a manager has changed old to o; old is
// nil for a new object.
func (m managers) update(k *kind, subresource string, old, o object, manager string) (object, error) {
	o.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	notes := o.GetManagedFields()
	reset := len(notes) == 1 && reflect.DeepEqual(notes[0], metav1.ManagedFieldsEntry{})
	var live any
	if old != nil {
		live = bare(k, old)
		if len(notes) == 0 || subresource != "" {
			notes = old.GetManagedFields()
		}
	}
	if reset {
		notes = nil
	}
	notes, err := m[managerKey{k, subresource}].Update(live, bare(k, o), notes, manager)
	if err != nil { // a list has elements without keys, or with duplicate keys
		return nil, apierrors.NewBadRequest(err.Error())
	}
	o.SetManagedFields(notes)
	return o, nil
}

// bare returns an object without its managedFields.
func bare(k *kind, o object) object {
	c := o.DeepCopyObject().(object)
	c.SetManagedFields(nil)
	c.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	return c
}

// apply returns an object after a server-side apply. The error for a conflict is a Status that
// names the owners of the fields.
func (m managers) apply(k *kind, subresource string, old object, applied map[string]any, manager string, force bool) (object, error) {
	live, err := content(bare(k, old))
	if err != nil {
		return nil, err
	}
	return m.merged(k, subresource, live, old.GetManagedFields(), applied, manager, force)
}

// merged returns the JSON of an object after a server-side apply.
func (m managers) merged(k *kind, subresource string, live map[string]any, notes []metav1.ManagedFieldsEntry, applied map[string]any, manager string, force bool) (object, error) {
	out, notes, err := m[managerKey{k, subresource}].Apply(live, applied, notes, manager, force)
	if err != nil {
		return nil, err
	}
	o, _, err := typed(k, out)
	if err != nil {
		return nil, err
	}
	o.SetManagedFields(notes)
	return o, nil
}

// dropUnknown removes the fields of an applied object that its type does not have.
func dropUnknown(object map[string]any, t reflect.Type) {
	s := schema.Of(t)
	if s == nil {
		return
	}
	for name, v := range object {
		f := s.Field(name)
		if f == nil {
			delete(object, name)
			continue
		}
		if _, scalar := schema.ScalarOf(f.Type); !scalar && !schema.Anything(f.Type) {
			dropWithin(v, f.Type)
		}
	}
}

func dropWithin(v any, t reflect.Type) {
	t = schema.Bare(t)
	switch v := v.(type) {
	case map[string]any:
		if t.Kind() == reflect.Struct {
			dropUnknown(v, t)
		}
		if t.Kind() == reflect.Map {
			for _, x := range v {
				dropWithin(x, t.Elem())
			}
		}
	case []any:
		if t.Kind() == reflect.Slice {
			for _, x := range v {
				dropWithin(x, t.Elem())
			}
		}
	}
}

package localapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nodewright/nodewright/localapi/internal/objects"
	"github.com/nodewright/nodewright/localapi/store"
	"github.com/nodewright/nodewright/podmeta"
)

// manager is the field manager of fields that a person has edited in a file.
const manager = "file"

// itself is the author that is written to a file if no request caused the write.
const itself = "nodewright"

// revisions is the number of resource versions that a process reserves at its start. It is
// more than one process can use.
const revisions = 1 << 40

// notes are the data that is stored beside an object for clients, not for people.
type notes struct {
	ManagedFields []metav1.ManagedFieldsEntry `json:"managedFields,omitempty"`
	// LastApplied is the annotation of kubectl apply.
	LastApplied string `json:"lastApplied,omitempty"`
}

// document returns an object as it is stored: the fields that a person would write, and
// those that must be the same after a restart.
func (s *Server) document(k *kind, o object) (store.Document, error) {
	c := o.DeepCopyObject().(object)
	n := notes{ManagedFields: c.GetManagedFields()}
	c.SetManagedFields(nil)
	c.SetResourceVersion("")
	c.SetSelfLink("")
	if a := c.GetAnnotations(); a[v1.LastAppliedConfigAnnotation] != "" {
		n.LastApplied = a[v1.LastAppliedConfigAnnotation]
		delete(a, v1.LastAppliedConfigAnnotation)
		c.SetAnnotations(a)
	}
	switch c := c.(type) {
	case *v1.Pod:
		if !podmeta.IsTerminal(c.Status.Phase) {
			c.Status = v1.PodStatus{}
		}
	case *v1.Node:
		c = s.ownWords(c)
		n.ManagedFields = nil
		return encoded(k, c, n)
	}
	return encoded(k, c, n)
}

func encoded(k *kind, o object, n notes) (store.Document, error) {
	o.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	text, err := json.Marshal(o)
	if err != nil {
		return store.Document{}, err
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		return store.Document{}, err
	}
	if status, ok := fields["status"].(map[string]any); ok && len(status) == 0 {
		delete(fields, "status")
	}
	doc := store.Document{Name: fileOf(k, o)}
	if doc.Object, err = json.Marshal(fields); err != nil {
		return doc, err
	}
	if len(n.ManagedFields) > 0 || n.LastApplied != "" {
		doc.Notes, err = json.Marshal(n)
	}
	return doc, err
}

// maxName limits the length of the name of an object's file; a longer name is cut.
const maxName = 200

// fileOf returns the file name for a new object.
func fileOf(k *kind, o object) string {
	name := k.singular
	if k.namespaced {
		name += "." + o.GetNamespace()
	}
	name += "." + o.GetName()
	if len(name) > maxName {
		sum := sha256.Sum256([]byte(name))
		name = name[:maxName] + "-" + hex.EncodeToString(sum[:8])
	}
	return name + ".yaml"
}

// load reads all stored objects.
func (s *Server) load(ctx context.Context) error {
	t, err := s.turn(ctx)
	if err != nil {
		return err
	}
	defer t.End()
	docs, err := s.cfg.Store.Load(ctx)
	if err != nil {
		return err
	}
	first, err := s.cfg.Store.Reserve(revisions)
	if err != nil {
		return err
	}
	s.set.Begin(first)
	s.begins(docs)
	t.held = true                              // collect the consequences, to handle them when all objects are loaded
	for _, late := range []bool{false, true} { // namespaces are loaded before the objects in them
		for i := range docs {
			if k, _ := s.kindOfDocument(&docs[i]); k != s.nodes && (k == s.namespaces) != late {
				t.take(&docs[i])
			}
		}
	}
	t.held = false
	t.drain()
	s.cfg.Log.Info("read objects", zap.Int("objects", s.set.Count()))
	return nil
}

// followLater handles the consequences of changes in manifests. A namespace that exists only
// because of objects from manifests gets a file, so that its UID is the same after a restart. A
// deleted object that only pods from manifests used is removed.
func (s *Server) followLater(ctx context.Context) {
	for {
		t, err := s.turn(ctx)
		if err != nil {
			return
		}
		for _, it := range s.set.List(s.namespaces, "") {
			if _, err := t.apply(change{Kind: s.namespaces, Key: keyOf(it.Object), Actor: objects.Clock, Verb: objects.Keep, By: itself}); err != nil {
				s.cfg.Log.Warn("failed to write the file of a namespace", zap.String("namespace", it.Object.GetName()), zap.Error(err))
			}
		}
		t.release()
		t.End()
		select {
		case <-s.later:
		case <-ctx.Done():
			return
		}
	}
}

// edited applies the documents that people have changed.
func (s *Server) edited(ctx context.Context, docs []store.Document) {
	t, err := s.turn(ctx)
	if err != nil {
		return
	}
	defer t.End()
	for i := range docs {
		t.take(&docs[i])
	}
}

// take applies a document. An invalid one is logged and changes nothing.
func (t *turn) take(d *store.Document) {
	if err := t.taken(d); err != nil {
		t.s.cfg.Log.Warn("ignored invalid file", zap.String("file", d.Name), zap.Error(err))
	}
}

func (t *turn) taken(d *store.Document) error {
	s := t.s
	was, old, had := s.set.ByFile(d.Name)
	if d.Gone() {
		if had && was != s.nodes {
			return t.left(was, old)
		}
		return nil
	}
	if d.Err != nil {
		return d.Err
	}
	k, err := s.kindOfDocument(d)
	if err != nil {
		return err
	}
	o, err := decodeDocument(k, d)
	if err != nil {
		return err
	}
	if k == s.nodes {
		return t.takeNode(d, o.(*v1.Node))
	}
	if it, there := s.item(k, keyOf(o)); there && it.File != d.Name && (it.File != "" || it.Origin == objects.Mirrored) {
		return fmt.Errorf("%s %s/%s is defined in %s already; want it in one place", k.Kind, o.GetNamespace(), o.GetName(), it.File+it.Source)
	}
	if had && was == k && keyOf(old.Object) == keyOf(o) {
		return t.takeChange(k, d, o, old)
	}
	if err := t.takeNew(k, d, o, objects.Create); err != nil || !had {
		return err
	}
	return t.left(was, old) // the file has another object now
}

// left removes an object that no file contains any more.
func (t *turn) left(k objects.Kind, old item) error {
	_, err := t.apply(change{Kind: k, Key: keyOf(old.Object), Actor: objects.File, Verb: objects.Gone})
	return err
}

// takeNew creates an object from a document, or replaces another object with the same name.
func (t *turn) takeNew(k *kind, d *store.Document, o object, verb objects.Verb) error {
	s := t.s
	whole := o.GetUID() != "" && !o.GetCreationTimestamp().Time.IsZero()
	if !whole {
		begin(o)
	}
	if p, ok := o.(*v1.Pod); ok {
		if !podmeta.IsTerminal(p.Status.Phase) {
			p.Status = v1.PodStatus{Phase: v1.PodPending}
		}
		p.Generation = max(p.Generation, 1)
		defaultPod(p)
		p.Status.QOSClass = podmeta.QOS(p)
		if p.Spec.NodeName == "" {
			s.place(p)
		} else {
			p.Spec.NodeName = s.cfg.Node // the node's name may have changed
		}
	}
	if n, ok := o.(*v1.Namespace); ok && n.Status.Phase == "" {
		newNamespace(n)
	}
	defaults(o)
	if errs := s.check(k, "", o, o); len(errs) > 0 {
		return errs.ToAggregate()
	}
	// An incomplete file is written again, since the UID has to be the same after a restart.
	ch := change{
		Kind: k, Key: keyOf(o), Actor: objects.File, Verb: verb, Object: o, By: manager, Read: objects.FileState{Name: d.Name, At: d.Revision, Complete: whole},
	}
	if err := t.inNamespace(k, ch); err != nil {
		return err
	}
	_, err := t.apply(ch)
	return err
}

// takeChange applies a new version of an object from a document.
func (t *turn) takeChange(k *kind, d *store.Document, o object, old item) error {
	s := t.s
	before := old.Object
	fields := before.GetManagedFields()
	objects.KeepServers(o, before)
	if v := objects.Field(o, "Status"); v.IsValid() && (k == s.pods || v.IsZero()) {
		v.Set(objects.Field(before.DeepCopyObject().(object), "Status"))
	}
	if p, ok := o.(*v1.Pod); ok && p.Spec.NodeName == "" {
		p.Spec.NodeName = before.(*v1.Pod).Spec.NodeName
	}
	defaults(o)
	if p, ok := o.(*v1.Pod); ok && !replaceable(p, before.(*v1.Pod), byFile) {
		// The change cannot be made to the running pod, so the old pod ends and a new one begins.
		o.SetUID("")
		p.Status = v1.PodStatus{}
		if err := t.takeNew(k, d, o, objects.Replace); err != nil {
			return err
		}
		t.follow(k, objects.Result{Object: before, Phase: objects.Absent})
		return nil
	}
	if errs := append(s.check(k, "", o, before), checkPodChange(o, before, byFile)...); len(errs) > 0 {
		return errs.ToAggregate()
	}
	o.SetManagedFields(fields)
	if managed, err := s.managers.update(k, "", before.DeepCopyObject().(object), o, manager); err == nil {
		o = managed
	}
	_, err := t.apply(change{Kind: k, Key: keyOf(o), Actor: objects.File, Verb: objects.Update, Object: o, Read: objects.FileState{Name: d.Name, At: d.Revision}})
	return err
}

// kindOfDocument returns the kind of a document.
func (s *Server) kindOfDocument(d *store.Document) (*kind, error) {
	var h struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := json.Unmarshal(d.Object, &h); err != nil {
		return nil, err
	}
	gvk := schema.FromAPIVersionAndKind(h.APIVersion, h.Kind)
	var names []string
	for _, k := range s.kinds {
		if k.GroupVersionKind == gvk && !k.memory {
			return k, nil
		}
		names = append(names, k.Kind)
	}
	for _, e := range newElsewhere() {
		if e.GroupVersionKind == gvk {
			return nil, errors.New(e.instead)
		}
	}
	return nil, fmt.Errorf("kind is %.100q of %.100q; want one of %s", h.Kind, h.APIVersion, strings.Join(names, ", "))
}

// decodeDocument decodes the object of a document.
func decodeDocument(k *kind, d *store.Document) (object, error) {
	o := k.new()
	unknown, err := decodeJSON(d.Object, o)
	if err != nil {
		return nil, err
	}
	if len(unknown) > 0 {
		return nil, errors.New(strings.Join(unknown[:min(len(unknown), 20)], ", "))
	}
	if !k.namespaced {
		o.SetNamespace("")
	} else if o.GetNamespace() == "" {
		o.SetNamespace(v1.NamespaceDefault)
	}
	var n notes
	if len(d.Notes) > 0 && json.Unmarshal(d.Notes, &n) == nil { // unreadable notes are ignored
		o.SetManagedFields(n.ManagedFields)
		if a := o.GetAnnotations(); n.LastApplied != "" && a[v1.LastAppliedConfigAnnotation] == "" {
			if a == nil {
				a = map[string]string{}
			}
			a[v1.LastAppliedConfigAnnotation] = n.LastApplied
			o.SetAnnotations(a)
		}
	}
	return o, nil
}

package localapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nodewright/nodewright/localapi/store"
	"github.com/nodewright/nodewright/podmeta"
)

// manager is who has the fields that a person has edited in a file.
const manager = "file"

// revisions is how many resource versions a process reserves: more than it can use.
const revisions = 1 << 40

// notes are what is kept beside an object: of use to programs alone.
type notes struct {
	ManagedFields []metav1.ManagedFieldsEntry `json:"managedFields,omitempty"`
	// LastApplied is the annotation of kubectl apply.
	LastApplied string `json:"lastApplied,omitempty"`
}

// kept reports whether an object is kept over a restart. A namespace that is there
// because something is in it is not.
func (s *Server) kept(k *kind, o object) bool {
	return !k.memory && (k != s.nodes || o.GetName() == s.cfg.Node)
}

// document is an object as it is kept: what a person would write, and what the object
// needs to be the same after a restart.
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

func sameDocument(a, b *store.Document) bool {
	return bytes.Equal(a.Object, b.Object) && bytes.Equal(a.Notes, b.Notes)
}

// maxName is how long the name of an object's file may be before it is cut.
const maxName = 200

// fileOf is the name of the file of a new object.
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

// load reads all that is kept.
func (s *Server) load(ctx context.Context) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.unlock()
	docs, err := s.cfg.Store.Load(ctx)
	if err != nil {
		return err
	}
	first, err := s.cfg.Store.Reserve(revisions)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.state.revision = first
	s.mu.Unlock()
	s.begins(docs)
	s.publish(s.namespaces, item{object: madeNamespace(v1.NamespaceDefault)}, nil)
	for _, late := range []bool{false, true} { // namespaces come before what is in them
		for i := range docs {
			if k, _ := s.kindOfDocument(&docs[i]); k != s.nodes && (k == s.namespaces) != late {
				s.take(&docs[i])
			}
		}
	}
	s.endNamespaces()
	s.mu.Lock()
	n := s.state.count
	s.mu.Unlock()
	s.cfg.Log.Info("read objects", zap.Int("objects", n))
	return nil
}

// endNamespaces goes on with namespaces that were ending when the process ended.
func (s *Server) endNamespaces() {
	s.mu.Lock()
	var ending []string
	for name, it := range s.state.objects[s.namespaces] {
		if it.object.GetDeletionTimestamp() != nil {
			ending = append(ending, name.name)
		}
	}
	s.mu.Unlock()
	for _, name := range ending {
		if err := s.emptyNamespace(&query{manager: "nodewright"}, name); err != nil {
			s.cfg.Log.Warn("failed to end what is in a namespace", zap.String("namespace", name), zap.Error(err))
		}
		s.emptied(name)
	}
}

// edited follows what people have changed.
func (s *Server) edited(ctx context.Context, docs []store.Document) {
	if s.lock(ctx) != nil {
		return
	}
	defer s.unlock()
	for i := range docs {
		s.take(&docs[i])
	}
}

// take has a document take effect. What is wrong with it is logged. Who calls it holds
// the turn.
func (s *Server) take(d *store.Document) {
	if err := s.taken(d); err != nil {
		s.cfg.Log.Warn("a file is not in effect", zap.String("file", d.Name), zap.Error(err))
	}
}

// byFile finds what was read from a file.
func (s *Server) byFile(name string) (*kind, item, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, items := range s.state.objects {
		for _, it := range items {
			if it.file == name {
				return k, it, true
			}
		}
	}
	return nil, item{}, false
}

func (s *Server) taken(d *store.Document) error {
	was, old, had := s.byFile(d.Name)
	if d.Gone() {
		if had && was != s.nodes {
			s.forget(was, keyOf(old.object))
			s.emptied(old.object.GetNamespace())
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
		return s.takeNode(d, o.(*v1.Node))
	}
	if had && (was != k || keyOf(old.object) != keyOf(o)) { // it is another object now
		s.forget(was, keyOf(old.object))
		had = false
	}
	if it, there := s.item(k, keyOf(o)); there && it.file != d.Name && (it.file != "" || it.source != "") {
		return fmt.Errorf("%s %s/%s is in %s already", k.Kind, o.GetNamespace(), o.GetName(), it.file+it.source)
	}
	if had {
		return s.takeChange(k, d, o, old)
	}
	return s.takeNew(k, d, o)
}

// takeNew has an object take effect that was not there before.
func (s *Server) takeNew(k *kind, d *store.Document, o object) error {
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
			p.Spec.NodeName = s.cfg.Node // the machine may have another name by now
		}
	}
	if n, ok := o.(*v1.Namespace); ok && n.Status.Phase == "" {
		newNamespace(n)
	}
	defaults(o)
	if errs := s.check(k, o, o); len(errs) > 0 {
		return errs.ToAggregate()
	}
	if _, ok := s.item(s.namespaces, key{name: o.GetNamespace()}); !ok && k.namespaced {
		s.publish(s.namespaces, item{object: madeNamespace(o.GetNamespace())}, nil)
	}
	it := item{object: o, file: d.Name, at: d.Revision}
	if whole {
		s.publish(k, it, nil)
		return nil
	}
	// Its UID has to be the same after a restart.
	doc, err := s.document(k, o)
	if err != nil {
		return err
	}
	doc.Name, doc.By, doc.At = d.Name, manager, time.Now()
	if it.at, err = s.cfg.Store.Put(doc, d.Revision); err != nil {
		return err
	}
	s.publish(k, it, nil)
	return nil
}

// takeChange has another version of an object take effect.
func (s *Server) takeChange(k *kind, d *store.Document, o object, old item) error {
	before := old.object
	fields := before.GetManagedFields()
	keepServers(o, before)
	carried := before.DeepCopyObject().(object)
	if v := fieldOf(o, "Status"); v.IsValid() && (k == s.pods || v.IsZero()) {
		v.Set(fieldOf(carried, "Status"))
	}
	if p, ok := o.(*v1.Pod); ok && p.Spec.NodeName == "" {
		p.Spec.NodeName = before.(*v1.Pod).Spec.NodeName
	}
	settle(o, before)
	if p, ok := o.(*v1.Pod); ok && !replaceable(p, before.(*v1.Pod)) {
		// No pod becomes this one: the old one ends, and another begins.
		o.SetUID("")
		s.forget(k, keyOf(before))
		if err := s.takeNew(k, d, o); err != nil {
			s.publish(k, item{object: carried, file: old.file, at: d.Revision}, nil)
			return err
		}
		return nil
	}
	if errs := s.check(k, o, before); len(errs) > 0 {
		return errs.ToAggregate()
	}
	o.SetManagedFields(fields)
	if managed, err := s.managers.update(k, "", before.DeepCopyObject().(object), o, manager); err == nil {
		o = managed
	}
	if unchanged(o, before) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if it, ok := s.state.objects[k][keyOf(o)]; ok {
			it.at = d.Revision
			s.state.objects[k][keyOf(o)] = it
		}
		return nil
	}
	s.publish(k, item{object: o, file: d.Name, at: d.Revision}, before)
	return nil
}

// kindOfDocument reads of which kind a document is.
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

// decodeDocument makes an object of a document.
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
	if len(d.Notes) > 0 && json.Unmarshal(d.Notes, &n) == nil { // notes that nobody can read are none
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

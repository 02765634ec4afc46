package kubeapitest

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/nodewright/nodewright/kubeapi"
)

// Create stores a copy of an object, with a UID and creation time if it has none. It
// panics if an object with the name exists, since the test is wrong.
func (s *Server) Create(obj object) {
	k, err := s.kindOf(obj)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		_, err = s.create(k.resource, obj.DeepCopyObject().(object))
	}
	if err != nil {
		panic(fmt.Sprintf("kubeapitest: %v", err))
	}
}

// Put stores a copy of an object and replaces the object of that name, including status and UID,
// which clients cannot set.
func (s *Server) Put(obj object) {
	k, err := s.kindOf(obj)
	if err != nil {
		panic(fmt.Sprintf("kubeapitest: %v", err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := obj.DeepCopyObject().(object)
	old := s.objects[k.resource][keyOf(k.resource, o)]
	if old == nil {
		_, _ = s.create(k.resource, o)
		return
	}
	if o.GetUID() == "" {
		o.SetUID(old.GetUID())
	}
	s.typed(o)
	s.commit(k.resource, watch.Modified, o)
}

// Edit replaces the object of that name by the result of change, with its status, and
// reports whether it exists. It is atomic, so change must not call the server. The
// parameter into gives the type of the object.
func (s *Server) Edit(into object, namespace, name string, change func(runtime.Object)) bool {
	k, err := s.kindOf(into)
	if err != nil {
		panic(fmt.Sprintf("kubeapitest: %v", err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.objects[k.resource][kubeapi.Key{Namespace: namespace, Name: name}]
	if old == nil {
		return false
	}
	o := old.DeepCopyObject().(object)
	change(o)
	if !sameField(o, old, "Spec") {
		o.SetGeneration(old.GetGeneration() + 1)
	}
	s.typed(o)
	if !equality.Semantic.DeepEqual(o, old) {
		s.commit(k.resource, watch.Modified, o)
	}
	return true
}

// Get returns a copy of an object of into's type, or nil.
func (s *Server) Get(into object, namespace, name string) runtime.Object {
	k, err := s.kindOf(into)
	if err != nil {
		panic(fmt.Sprintf("kubeapitest: %v", err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[k.resource][kubeapi.Key{Namespace: namespace, Name: name}]
	if o == nil {
		return nil
	}
	return o.DeepCopyObject()
}

// All returns copies of all objects of a resource, in any order.
func (s *Server) All(r kubeapi.Resource) []runtime.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []runtime.Object
	for _, o := range s.objects[r] {
		out = append(out, o.DeepCopyObject())
	}
	return out
}

// Delete deletes an object like a user: a pod gets its grace period.
func (s *Server) Delete(r kubeapi.Resource, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.remove(r, kubeapi.Key{Namespace: namespace, Name: name}, metav1.DeleteOptions{})
}

// Remove removes an object at once.
func (s *Server) Remove(r kubeapi.Resource, namespace, name string) {
	var none int64
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.remove(r, kubeapi.Key{Namespace: namespace, Name: name}, metav1.DeleteOptions{GracePeriodSeconds: &none})
}

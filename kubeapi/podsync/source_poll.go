package podsync

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nodewright/nodewright/kubeapi"
)

// The node authorizer allows a node to get claims and volumes, but not to watch them.
const (
	pollUnbound = 2 * time.Second // while a pod waits for the object
	pollBound   = time.Minute     // afterwards: the volume may be expanded
)

// polled is the type of objects that are polled.
type polled interface {
	runtime.Object
	metav1.Object
}

// poll reads an object repeatedly until ctx ends, on a goroutine of its own. It
// waits at the gate while the server is away.
func (s *Source) poll(ctx context.Context, o *object, r kubeapi.Resource, empty func() polled) {
	k := kubeapi.Key{Namespace: o.ref.Namespace, Name: o.ref.Name}
	for s.gate.Wait(ctx) {
		is := empty()
		err := s.cfg.Client.Get(ctx, r, k, is)
		pause := pollUnbound
		switch {
		case err == nil:
			// Managed fields are not needed, and often larger than the rest of the object.
			is.SetManagedFields(nil)
			s.know(o, is)
			if s.bound(o, is) {
				pause = pollBound
			}
		// A claim may be created after the pod that names it.
		case apierrors.IsNotFound(err):
			s.know(o, nil)
		case ctx.Err() == nil:
			s.cfg.Log.Debug("failed to read object", zap.Reflect("object", o.ref), zap.Error(err), zap.Duration("retry", pause))
		}
		// The pause is spread over 50 to 150 %, so that nodes that started together do not call
		// together.
		t := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-o.again:
			t.Stop()
		case <-t.C:
		}
	}
}

// bound reports whether an object is in the state for which its pods wait. ref is the
// entry of the object in Source.refs, and o is the version that was just read.
func (s *Source) bound(ref *object, o metav1.Object) bool {
	switch o := o.(type) {
	case *v1.PersistentVolumeClaim:
		return o.Status.Phase == v1.ClaimBound && o.Spec.VolumeName != ""
	case *v1.PersistentVolume:
		return o.Status.Phase == v1.VolumeBound
	case *resourcev1.ResourceClaim:
		s.mu.Lock()
		defer s.mu.Unlock()
		// A claim may be shared: its list has to contain every pod of this node that refers to it.
		for _, e := range s.pods {
			if slices.Contains(e.refs, ref.ref) && !usable(o, e.pod) {
				return false
			}
		}
	}
	return true
}

// usable reports whether a ResourceClaim is allocated, and reserved for a pod.
func usable(o metav1.Object, pod *v1.Pod) bool {
	c, ok := o.(*resourcev1.ResourceClaim)
	return ok && c.Status.Allocation != nil && slices.ContainsFunc(c.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool {
		return r.UID == pod.UID && r.Resource == "pods" && r.APIGroup == ""
	})
}

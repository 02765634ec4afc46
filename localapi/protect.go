package localapi

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/localapi/internal/objects"
	"github.com/nodewright/nodewright/podmeta"
)

// protection returns the finalizer that keeps an object while it is in use; "" for kinds without
// one. The names are Kubernetes'.
func protection(o object) string {
	switch o.(type) {
	case *v1.PersistentVolumeClaim:
		return "kubernetes.io/pvc-protection"
	case *v1.PersistentVolume:
		return "kubernetes.io/pv-protection"
	case *resourcev1.ResourceClaim:
		return resourcev1.Finalizer
	default:
		return ""
	}
}

// mayBeUsed returns the result of used, but always true until all pods from manifests
// are known.
func (s *Server) mayBeUsed(o object) bool { return !s.allShown() || s.used(o) }

// used reports whether an object is in use: pods on the node use claims, and claims use volumes.
func (s *Server) used(o object) bool {
	switch o := o.(type) {
	case *v1.PersistentVolumeClaim, *resourcev1.ResourceClaim:
		return slices.ContainsFunc(s.set.List(s.pods, o.GetNamespace()), func(it item) bool {
			p := it.Object.(*v1.Pod)
			return p.Spec.NodeName != "" && uses(p, o)
		})
	case *v1.PersistentVolume:
		ref := o.Spec.ClaimRef
		return slices.ContainsFunc(s.set.List(s.claims, ""), func(it item) bool {
			c := it.Object.(*v1.PersistentVolumeClaim)
			return c.Spec.VolumeName == o.Name ||
				ref != nil && ref.Namespace == c.Namespace && ref.Name == c.Name && (ref.UID == "" || ref.UID == c.UID)
		})
	default:
		return false
	}
}

// uses reports whether a pod uses a claim in its namespace. A finished pod has released its
// devices, but not its volumes.
func uses(p *v1.Pod, claim object) bool {
	name := claim.GetName()
	switch claim.(type) {
	case *v1.PersistentVolumeClaim:
		return slices.ContainsFunc(p.Spec.Volumes, func(v v1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == name ||
				v.Ephemeral != nil && p.Name+"-"+v.Name == name && metav1.IsControlledBy(claim, p)
		})
	case *resourcev1.ResourceClaim:
		return !podmeta.IsTerminal(p.Status.Phase) && (slices.ContainsFunc(p.Spec.ResourceClaims, func(c v1.PodResourceClaim) bool {
			return deref(c.ResourceClaimName) == name
		}) || slices.ContainsFunc(p.Status.ResourceClaimStatuses, func(c v1.PodResourceClaimStatus) bool {
			return deref(c.ResourceClaimName) == name
		}))
	default:
		return false
	}
}

// endingClaim returns a claim that a pod uses and that is being deleted; nil if there is none.
func (s *Server) endingClaim(p *v1.Pod) object {
	for _, k := range s.kinds {
		if !k.namespaced || protection(k.empty) == "" {
			continue
		}
		for _, it := range s.set.List(k, p.Namespace) {
			if it.Object.GetDeletionTimestamp() != nil && uses(p, it.Object) {
				return it.Object
			}
		}
	}
	return nil
}

// protected returns ch. If ch deletes an object that is used, such as a claim of a running pod,
// the returned change adds the protection finalizer, and the deletion waits for its last user.
func (s *Server) protected(ch change) change {
	if it, ok := s.set.Get(ch.Kind, ch.Key); ok && ch.Verb == objects.Delete && protection(it.Object) != "" && s.mayBeUsed(it.Object) {
		ch.Wait = protection(it.Object)
	}
	return ch
}

// release continues the deletion of objects that are no longer used.
func (t *turn) release() {
	for _, k := range t.s.kinds {
		if protection(k.empty) == "" {
			continue
		}
		for _, it := range t.s.set.List(k, "") {
			t.unblock(objects.Ref{Kind: k, Key: keyOf(it.Object)})
		}
	}
}

// releases reports whether a changed object may have been the last user of another one.
func releases(c outcome) bool {
	switch o := c.Object.(type) {
	case *v1.Pod:
		return c.Phase == objects.Absent || podmeta.IsTerminal(o.Status.Phase)
	case *v1.PersistentVolumeClaim:
		return c.Phase == objects.Absent
	default:
		return false
	}
}

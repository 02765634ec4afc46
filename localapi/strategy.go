package localapi

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nodewright/nodewright/localapi/internal/objects"
	"github.com/nodewright/nodewright/podmeta"
)

// prepareCreate sets the fields that a new object gets, and removes those that clients must not
// set.
func (s *Server) prepareCreate(k *kind, o object) error {
	switch o := o.(type) {
	case *v1.Pod:
		if err := admitPriority(k, o); err != nil {
			return err
		}
		newPod(o)
	case *v1.Namespace:
		newNamespace(o)
	case *v1.PersistentVolume:
		o.Status = v1.PersistentVolumeStatus{Phase: v1.VolumeAvailable}
	case *v1.PersistentVolumeClaim:
		o.Status = v1.PersistentVolumeClaimStatus{Phase: v1.ClaimPending}
	}
	defaults(o)
	return nil
}

// admitPriority rejects a new pod with an unknown priority class, or with a priority number; a
// number would let it preempt others. The two classes of system pods are known.
func admitPriority(k *kind, p *v1.Pod) error {
	n, ok := podmeta.PriorityOf(p.Spec.PriorityClassName)
	if p.Spec.PriorityClassName != "" && !ok {
		return apierrors.NewForbidden(k.groupResource(), p.Name, fmt.Errorf("no PriorityClass with name %s was found; a node alone has system-node-critical and system-cluster-critical", p.Spec.PriorityClassName))
	}
	if p.Spec.Priority != nil && *p.Spec.Priority != n {
		return apierrors.NewForbidden(k.groupResource(), p.Name, fmt.Errorf("the integer value of priority (%d) must not be provided in pod spec; the class %q has %d", *p.Spec.Priority, p.Spec.PriorityClassName, n))
	}
	if got := p.Spec.PreemptionPolicy; got != nil && *got != v1.PreemptLowerPriority {
		return apierrors.NewForbidden(k.groupResource(), p.Name, fmt.Errorf("the string value of PreemptionPolicy (%.100s) must not be provided in pod spec; the class %q has %s", *got, p.Spec.PriorityClassName, v1.PreemptLowerPriority))
	}
	return nil
}

// admit does what an API server's admission does with a new pod: it sets the priority, and the
// tolerations for an unreachable node. Like the node's name, these fields have no owner in
// managedFields.
func admit(p *v1.Pod) {
	n, _ := podmeta.PriorityOf(p.Spec.PriorityClassName)
	setPtr(&p.Spec.Priority, n)
	setPtr(&p.Spec.PreemptionPolicy, v1.PreemptLowerPriority)
	tolerate(p)
}

// tolerate adds tolerations of five minutes for a node that is not ready or unreachable, unless
// the pod has its own.
func tolerate(p *v1.Pod) {
	for _, taint := range []string{v1.TaintNodeNotReady, v1.TaintNodeUnreachable} {
		if !slices.ContainsFunc(p.Spec.Tolerations, func(t v1.Toleration) bool {
			return (t.Key == taint || t.Key == "") && (t.Effect == v1.TaintEffectNoExecute || t.Effect == "")
		}) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, v1.Toleration{
				Key: taint, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute, TolerationSeconds: new(int64(300)),
			})
		}
	}
}

// defaults sets the API's defaults.
func defaults(o object) {
	switch o := o.(type) {
	case *v1.Pod:
		defaultPod(o)
	case *v1.Secret:
		if len(o.StringData) > 0 {
			if o.Data == nil {
				o.Data = map[string][]byte{}
			}
			for name, v := range o.StringData {
				o.Data[name] = []byte(v)
			}
			o.StringData = nil
		}
		if o.Type == "" {
			o.Type = v1.SecretTypeOpaque
		}
	case *v1.PersistentVolume:
		if o.Spec.PersistentVolumeReclaimPolicy == "" {
			o.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimRetain
		}
		setPtr(&o.Spec.VolumeMode, v1.PersistentVolumeFilesystem)
		if o.Status.Phase == "" || o.Status.Phase == v1.VolumeAvailable || o.Status.Phase == v1.VolumeBound {
			o.Status.Phase = v1.VolumeAvailable
			if o.Spec.ClaimRef != nil {
				o.Status.Phase = v1.VolumeBound
			}
		}
	case *v1.PersistentVolumeClaim:
		setPtr(&o.Spec.VolumeMode, v1.PersistentVolumeFilesystem)
		// There is no volume controller here: a claim is bound if its author has set volumeName.
		if o.Spec.VolumeName != "" && o.Status.Phase != v1.ClaimLost {
			o.Status.Phase, o.Status.AccessModes = v1.ClaimBound, o.Spec.AccessModes
			if o.Status.Capacity == nil {
				o.Status.Capacity = maps.Clone(o.Spec.Resources.Requests)
			}
		} else if o.Status.Phase == "" {
			o.Status.Phase = v1.ClaimPending
		}
	case *resourcev1.ResourceClaim:
		defaultResourceClaim(o)
	case *v1.Namespace:
		nameLabel(o)
		if o.Status.Phase == "" {
			o.Status.Phase = v1.NamespaceActive
		}
	case *v1.Event:
		if o.Count == 0 && o.Series == nil && o.EventTime.IsZero() {
			o.Count = 1
		}
	}
}

func setPtr[T any](p **T, v T) {
	if *p == nil {
		*p = &v
	}
}

// prepareUpdate restores the fields that a writer of an object, or of a subresource, must not
// change.
func (s *Server) prepareUpdate(k *kind, subresource string, o, old object) error {
	objects.KeepServers(o, old)
	switch subresource {
	case "":
		if v := objects.Field(o, "Status"); v.IsValid() {
			v.Set(objects.Field(old, "Status"))
		}
		if p, ok := o.(*v1.Pod); ok {
			was := old.(*v1.Pod)
			p.Spec.NodeName = cmp.Or(p.Spec.NodeName, was.Spec.NodeName)
			if p.Spec.Priority == nil && p.Spec.PriorityClassName == was.Spec.PriorityClassName {
				p.Spec.Priority = was.Spec.Priority
			}
			if p.Spec.PreemptionPolicy == nil {
				p.Spec.PreemptionPolicy = was.Spec.PreemptionPolicy
			}
			tolerate(p)
			if p.Spec.Resources == nil { // older clients do not know the field
				p.Spec.Resources = was.Spec.Resources.DeepCopy()
			}
		}
		if n, ok := o.(*v1.Namespace); ok {
			n.Spec = *old.(*v1.Namespace).Spec.DeepCopy()
		}
		if n, ok := o.(*v1.Node); ok {
			before := old.(*v1.Node)
			want := before.Spec.DeepCopy()
			want.Unschedulable = n.Spec.Unschedulable
			if !equality.Semantic.DeepEqual(&n.Spec, want) {
				return invalid(k, o.GetName(), field.ErrorList{field.Forbidden(field.NewPath("spec"), "only unschedulable, labels and annotations may be changed; the agent's configuration sets the rest")})
			}
		}
	case "status":
		status := objects.Field(o, "Status")
		kept := reflect.New(status.Type()).Elem()
		kept.Set(status)
		overwrite(o, old)
		objects.Field(o, "Status").Set(kept)
		if n, ok := o.(*v1.Node); ok {
			return s.prepareNodeStatus(k, n, old.(*v1.Node))
		}
		keepStatus(o, old)
	case "finalize": // of a namespace; it ends when it is empty
		if errs := checkFinalizers(o.(*v1.Namespace).Spec.Finalizers, field.NewPath("spec")); len(errs) > 0 {
			return invalid(k, o.GetName(), errs)
		}
		overwrite(o, old)
	case "ephemeralcontainers", "resize":
		return s.preparePodPart(k, subresource, o.(*v1.Pod), old.(*v1.Pod))
	}
	return nil
}

// keepStatus restores the fields of a status that clients do not write, or that older clients do
// not know. If the fields podIP and podIPs of a pod disagree, one of them is corrected.
func keepStatus(o, old object) {
	switch o := o.(type) {
	case *v1.Pod:
		is, was := &o.Status, &old.(*v1.Pod).Status
		is.QOSClass = cmp.Or(is.QOSClass, was.QOSClass)
		if is.ResourceClaimStatuses == nil {
			is.ResourceClaimStatuses = was.ResourceClaimStatuses
		}
		if is.ExtendedResourceClaimStatus == nil {
			is.ExtendedResourceClaimStatus = was.ExtendedResourceClaimStatus
		}
		switch {
		case is.PodIP == "" && len(is.PodIPs) > 0:
			is.PodIP = is.PodIPs[0].IP
		case is.PodIP != "" && (len(is.PodIPs) == 0 || is.PodIPs[0].IP != is.PodIP):
			is.PodIPs = []v1.PodIP{{IP: is.PodIP}}
		}
	case *resourcev1.ResourceClaim:
		dropDevices(&o.Status, &old.(*resourcev1.ResourceClaim).Status)
	}
}

// overwrite gives o the content of old, except for the managedFields.
func overwrite(o, old object) {
	fields := o.GetManagedFields()
	reflect.ValueOf(o).Elem().Set(reflect.ValueOf(old.DeepCopyObject()).Elem())
	if fields != nil {
		o.SetManagedFields(fields)
	}
}

// newNamespace initializes a namespace.
func newNamespace(n *v1.Namespace) {
	n.Status = v1.NamespaceStatus{Phase: v1.NamespaceActive}
	nameLabel(n)
}

// nameLabel labels a namespace with its name, so that selectors can find it.
func nameLabel(n *v1.Namespace) {
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	n.Labels[v1.LabelMetadataName] = n.Name
}

// inNamespace creates the namespace of a new object if it does not exist. Events create none,
// since they may arrive after the end of their object.
func (t *turn) inNamespace(k *kind, ch change) error {
	name := ch.Key.Namespace
	if _, ok := t.s.item(t.s.namespaces, key{Name: name}); ok || !k.namespaced || k.memory || ch.DryRun {
		return nil
	}
	n := madeNamespace(name)
	_, err := t.apply(change{Kind: t.s.namespaces, Key: keyOf(n), Actor: objects.Clock, Verb: objects.Create, Object: n, By: ch.By})
	return err
}

// madeNamespace returns a namespace that exists because of the objects in it.
func madeNamespace(name string) *v1.Namespace {
	n := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	begin(n)
	newNamespace(n)
	return n
}

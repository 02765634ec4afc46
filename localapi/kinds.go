package localapi

import (
	"reflect"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nodewright/nodewright/internal/podtext"
)

// kind is a kind of objects with its resource.
type kind struct {
	schema.GroupVersionKind

	resource, singular string
	short, categories  []string
	namespaced         bool
	empty              object         // shared; never modified
	list               runtime.Object // shared; never modified
	// subresources are those that are written like the object itself.
	subresources []string
	// streams are the subresources that the node's own API serves.
	streams []string
	// memory means that objects are only in memory.
	memory bool
	// fixed says why objects can be neither created nor deleted; "" if they can.
	fixed string
	// columns are the columns of kubectl's tables, for objects as they are stored.
	columns []podtext.Column
	// view makes this kind another version of a stored kind; nil for a stored kind.
	view *view
}

func (k *kind) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.resource}
}

func (k *kind) new() object { return k.empty.DeepCopyObject().(object) }

func (k *kind) goType() reflect.Type { return reflect.TypeOf(k.empty).Elem() }

func (k *kind) verbs() metav1.Verbs {
	verbs := metav1.Verbs{"get", "list", "patch", "update", "watch"}
	if k.fixed == "" {
		verbs = metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	}
	return verbs
}

var (
	coreV1     = schema.GroupVersion{Version: "v1"}
	eventsV1   = eventsv1.SchemeGroupVersion
	leasesV1   = schema.GroupVersion{Group: "coordination.k8s.io", Version: "v1"}
	resourceV1 = schema.GroupVersion{Group: "resource.k8s.io", Version: "v1"}
)

// newKinds returns the served kinds, in the order of discovery.
func newKinds() []*kind {
	events := &kind{
		GroupVersionKind: coreV1.WithKind("Event"), resource: "events", singular: "event", short: []string{"ev"}, namespaced: true, memory: true,
		empty: &v1.Event{}, list: &v1.EventList{}, columns: podtext.Events,
	}
	return []*kind{
		{
			GroupVersionKind: coreV1.WithKind("ConfigMap"), resource: "configmaps", singular: "configmap", short: []string{"cm"}, namespaced: true,
			empty: &v1.ConfigMap{}, list: &v1.ConfigMapList{}, columns: podtext.ConfigMaps,
		},
		events,
		{
			GroupVersionKind: coreV1.WithKind("Namespace"), resource: "namespaces", singular: "namespace", short: []string{"ns"},
			empty: &v1.Namespace{}, list: &v1.NamespaceList{}, subresources: []string{"status", "finalize"}, columns: podtext.Namespaces,
		},
		{
			GroupVersionKind: coreV1.WithKind("Node"), resource: "nodes", singular: "node", short: []string{"no"},
			empty: &v1.Node{}, list: &v1.NodeList{}, subresources: []string{"status"}, streams: []string{"proxy"}, columns: podtext.Nodes,
			fixed: "this is the API of one node, which is there as long as its agent is",
		},
		{
			GroupVersionKind: coreV1.WithKind("PersistentVolumeClaim"), resource: "persistentvolumeclaims", singular: "persistentvolumeclaim", short: []string{"pvc"}, namespaced: true,
			empty: &v1.PersistentVolumeClaim{}, list: &v1.PersistentVolumeClaimList{}, subresources: []string{"status"}, columns: podtext.Claims,
		},
		{
			GroupVersionKind: coreV1.WithKind("PersistentVolume"), resource: "persistentvolumes", singular: "persistentvolume", short: []string{"pv"},
			empty: &v1.PersistentVolume{}, list: &v1.PersistentVolumeList{}, subresources: []string{"status"}, columns: podtext.Volumes,
		},
		{
			GroupVersionKind: coreV1.WithKind("Pod"), resource: "pods", singular: "pod", short: []string{"po"}, categories: []string{"all"}, namespaced: true,
			empty: &v1.Pod{}, list: &v1.PodList{}, columns: podtext.Pods,
			subresources: []string{"status", "ephemeralcontainers", "resize"}, streams: []string{"log", "exec", "attach", "portforward"},
		},
		{
			GroupVersionKind: coreV1.WithKind("Secret"), resource: "secrets", singular: "secret", namespaced: true,
			empty: &v1.Secret{}, list: &v1.SecretList{}, columns: podtext.Secrets,
		},
		{
			GroupVersionKind: leasesV1.WithKind("Lease"), resource: "leases", singular: "lease", namespaced: true,
			empty: &coordinationv1.Lease{}, list: &coordinationv1.LeaseList{}, columns: leaseColumns,
		},
		{
			GroupVersionKind: eventsV1.WithKind("Event"), resource: "events", singular: "event", short: []string{"ev"}, namespaced: true, memory: true,
			empty: &eventsv1.Event{}, list: &eventsv1.EventList{}, columns: podtext.Events, view: viewOfEvents(events),
		},
		{
			GroupVersionKind: resourceV1.WithKind("ResourceClaim"), resource: "resourceclaims", singular: "resourceclaim", namespaced: true,
			empty: &resourcev1.ResourceClaim{}, list: &resourcev1.ResourceClaimList{}, subresources: []string{"status"}, columns: resourceClaimColumns,
		},
	}
}

// newScheme returns a scheme with the served kinds and the types about them, such as Status, and
// no others.
func newScheme(kinds []*kind) *runtime.Scheme {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, coreV1) // v1 also has Status
	for _, gv := range []schema.GroupVersion{leasesV1, eventsV1, resourceV1} {
		metav1.AddToGroupVersion(s, gv)
	}
	for _, k := range kinds {
		s.AddKnownTypeWithName(k.GroupVersionKind, k.empty)
		s.AddKnownTypeWithName(k.GroupVersion().WithKind(k.Kind+"List"), k.list)
	}
	s.AddKnownTypes(policyv1.SchemeGroupVersion, &policyv1.Eviction{})
	addReviews(s)
	s.AddKnownTypes(metav1.SchemeGroupVersion, &metav1.Table{}, &metav1.PartialObjectMetadata{}, &metav1.PartialObjectMetadataList{})
	return s
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

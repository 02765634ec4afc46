package kubeapi

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Object is one of the API of which this package has a type of its own, with the
// fields that a node agent reads; it travels as JSON. All other types are those of
// k8s.io/api, whose packages for these would add some hundred kilobytes to an agent.
// Status is an empty struct for objects without one. A copy shares Spec and Status,
// in which nothing is ever changed.
type Object[Spec, Status any] struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   Spec   `json:"spec"`
	Status Status `json:"status,omitzero"`
}

// DeepCopyObject implements [runtime.Object].
func (o *Object[Spec, Status]) DeepCopyObject() runtime.Object { return o.copied() }

// copied is DeepCopyObject with the type.
func (o *Object[Spec, Status]) copied() *Object[Spec, Status] {
	c := *o
	o.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// List lists such objects.
type List[Spec, Status any] struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Object[Spec, Status] `json:"items"`
}

// DeepCopyObject copies the list and its objects.
func (l *List[Spec, Status]) DeepCopyObject() runtime.Object {
	c := *l
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	c.Items = nil
	for i := range l.Items {
		c.Items = append(c.Items, *l.Items[i].copied())
	}
	return &c
}

// ownGroups are the groups of these objects, and the objects by their kinds.
var ownGroups = map[schema.GroupVersion]map[string]runtime.Object{
	certificates: {
		"ClusterTrustBundle": &ClusterTrustBundle{}, "ClusterTrustBundleList": &ClusterTrustBundleList{},
		"PodCertificateRequest": &PodCertificateRequestV1beta1{}, "PodCertificateRequestList": &PodCertificateRequestListV1beta1{},
	},
	storageGroup: {
		"CSIDriver": &CSIDriver{}, "CSIDriverList": &CSIDriverList{}, "CSINode": &CSINode{}, "CSINodeList": &CSINodeList{},
		"VolumeAttachment": &VolumeAttachment{}, "VolumeAttachmentList": &VolumeAttachmentList{},
	},
}

// addOwn has a scheme know them. It never fails, and has an error to be like the others
// in NewScheme.
func addOwn(s *runtime.Scheme) error {
	for gv, kinds := range ownGroups {
		for kind, o := range kinds {
			s.AddKnownTypeWithName(gv.WithKind(kind), o)
		}
		metav1.AddToGroupVersion(s, gv)
	}
	return nil
}

// certificates is where ClusterTrustBundles (KEP-3257) are, and PodCertificateRequests
// (KEP-4317) of API servers without v1.
var certificates = schema.GroupVersion{Group: "certificates.k8s.io", Version: "v1beta1"}

type (
	// ClusterTrustBundle holds certificates that many in a cluster trust.
	ClusterTrustBundle = Object[ClusterTrustBundleSpec, struct{}]
	// ClusterTrustBundleList lists them.
	ClusterTrustBundleList = List[ClusterTrustBundleSpec, struct{}]
)

// ClusterTrustBundleSpec has the certificates to trust.
type ClusterTrustBundleSpec struct {
	// SignerName is whose roots these are; "" is nobody's in particular.
	SignerName string `json:"signerName,omitempty"`
	// TrustBundle are the certificates, in PEM.
	TrustBundle string `json:"trustBundle"`
}

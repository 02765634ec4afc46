package apiclient

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// trustBundles is where ClusterTrustBundles are (KEP-3257). All other types of a
// node agent are those of k8s.io/api; that package would add 160 kB to it for
// three strings, and so these are its own, which travel as JSON.
var trustBundles = schema.GroupVersion{Group: "certificates.k8s.io", Version: "v1beta1"}

// ClusterTrustBundle holds certificates that many in a cluster trust.
type ClusterTrustBundle struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ClusterTrustBundleSpec `json:"spec"`
}

// ClusterTrustBundleSpec says what to trust.
type ClusterTrustBundleSpec struct {
	// SignerName is whose roots these are; "" is nobody's in particular.
	SignerName string `json:"signerName,omitempty"`
	// TrustBundle are the certificates, in PEM.
	TrustBundle string `json:"trustBundle"`
}

// ClusterTrustBundleList lists them.
type ClusterTrustBundleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterTrustBundle `json:"items"`
}

// DeepCopyObject implements [runtime.Object].
func (b *ClusterTrustBundle) DeepCopyObject() runtime.Object {
	c := *b
	b.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// DeepCopyObject implements [runtime.Object].
func (l *ClusterTrustBundleList) DeepCopyObject() runtime.Object {
	c := *l
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	c.Items = nil
	for i := range l.Items {
		c.Items = append(c.Items, *l.Items[i].DeepCopyObject().(*ClusterTrustBundle))
	}
	return &c
}

// addTrustBundles has a scheme know them.
func addTrustBundles(s *runtime.Scheme) error {
	s.AddKnownTypes(trustBundles, &ClusterTrustBundle{}, &ClusterTrustBundleList{})
	metav1.AddToGroupVersion(s, trustBundles)
	return nil
}

package kubeapi

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is a kind of objects and its place in the API.
type Resource struct {
	Group, Version string
	// Name is the plural in paths, as in "pods".
	Name       string
	Namespaced bool
}

// String returns the name with its group, as in "leases.coordination.k8s.io".
func (r Resource) String() string {
	return schema.GroupResource{Group: r.Group, Resource: r.Name}.String()
}

// The resources that a node agent uses.
var (
	Pods                   = Resource{"", "v1", "pods", true}
	Nodes                  = Resource{"", "v1", "nodes", false}
	ConfigMaps             = Resource{"", "v1", "configmaps", true}
	Secrets                = Resource{"", "v1", "secrets", true}
	Services               = Resource{"", "v1", "services", true}
	ServiceAccounts        = Resource{"", "v1", "serviceaccounts", true}
	Namespaces             = Resource{"", "v1", "namespaces", false}
	Events                 = Resource{"", "v1", "events", true}
	PersistentVolumes      = Resource{"", "v1", "persistentvolumes", false}
	PersistentVolumeClaims = Resource{"", "v1", "persistentvolumeclaims", true}

	ClusterTrustBundles    = Resource{"certificates.k8s.io", "v1beta1", "clustertrustbundles", false}
	PodCertificateRequests = Resource{"certificates.k8s.io", "v1", "podcertificaterequests", true}
	// PodCertificateRequestsV1beta1 is the resource of API servers before Kubernetes 1.37.
	PodCertificateRequestsV1beta1 = Resource{"certificates.k8s.io", "v1beta1", "podcertificaterequests", true}

	Leases         = Resource{"coordination.k8s.io", "v1", "leases", true}
	CSRs           = Resource{"certificates.k8s.io", "v1", "certificatesigningrequests", false}
	TokenReviews   = Resource{"authentication.k8s.io", "v1", "tokenreviews", false}
	AccessReviews  = Resource{"authorization.k8s.io", "v1", "subjectaccessreviews", false}
	RuntimeClasses = Resource{"node.k8s.io", "v1", "runtimeclasses", false}
	ResourceClaims = Resource{"resource.k8s.io", "v1", "resourceclaims", true}
	ResourceSlices = Resource{"resource.k8s.io", "v1", "resourceslices", false}

	CSIDrivers        = Resource{"storage.k8s.io", "v1", "csidrivers", false}
	CSINodes          = Resource{"storage.k8s.io", "v1", "csinodes", false}
	VolumeAttachments = Resource{"storage.k8s.io", "v1", "volumeattachments", false}
)

// NewScheme returns a scheme with the groups above.
func NewScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	for _, add := range []func(*runtime.Scheme) error{
		v1.AddToScheme, coordinationv1.AddToScheme, certificatesv1.AddToScheme, certificatesv1beta1.AddToScheme, authenticationv1.AddToScheme,
		authorizationv1.AddToScheme, nodev1.AddToScheme, resourcev1.AddToScheme, storagev1.AddToScheme,
	} {
		if err := add(s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

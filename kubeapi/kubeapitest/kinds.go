package kubeapitest

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nodewright/nodewright/kubeapi/apiclient"
)

// object is any object.
type object interface {
	runtime.Object
	metav1.Object
}

// kind is a resource with its types.
type kind struct {
	resource apiclient.Resource
	object   object         // an empty one
	list     runtime.Object // an empty one
}

func kinds() map[string]kind {
	out := map[string]kind{}
	for _, k := range []kind{
		{apiclient.Pods, &v1.Pod{}, &v1.PodList{}},
		{apiclient.Nodes, &v1.Node{}, &v1.NodeList{}},
		{apiclient.ConfigMaps, &v1.ConfigMap{}, &v1.ConfigMapList{}},
		{apiclient.Secrets, &v1.Secret{}, &v1.SecretList{}},
		{apiclient.Services, &v1.Service{}, &v1.ServiceList{}},
		{apiclient.ServiceAccounts, &v1.ServiceAccount{}, &v1.ServiceAccountList{}},
		{apiclient.Namespaces, &v1.Namespace{}, &v1.NamespaceList{}},
		{apiclient.Events, &v1.Event{}, &v1.EventList{}},
		{apiclient.PersistentVolumes, &v1.PersistentVolume{}, &v1.PersistentVolumeList{}},
		{apiclient.PersistentVolumeClaims, &v1.PersistentVolumeClaim{}, &v1.PersistentVolumeClaimList{}},
		{apiclient.Leases, &coordinationv1.Lease{}, &coordinationv1.LeaseList{}},
		{apiclient.CSRs, &certificatesv1.CertificateSigningRequest{}, &certificatesv1.CertificateSigningRequestList{}},
		{apiclient.TokenReviews, &authenticationv1.TokenReview{}, nil},
		{apiclient.AccessReviews, &authorizationv1.SubjectAccessReview{}, nil},
		{apiclient.RuntimeClasses, &nodev1.RuntimeClass{}, &nodev1.RuntimeClassList{}},
		{apiclient.ResourceClaims, &resourcev1.ResourceClaim{}, &resourcev1.ResourceClaimList{}},
		{apiclient.ClusterTrustBundles, &apiclient.ClusterTrustBundle{}, &apiclient.ClusterTrustBundleList{}},
		{apiclient.PodCertificateRequests, &certificatesv1.PodCertificateRequest{}, &certificatesv1.PodCertificateRequestList{}},
		{apiclient.PodCertificateRequestsV1beta1, &apiclient.PodCertificateRequestV1beta1{}, &apiclient.PodCertificateRequestListV1beta1{}},
		{apiclient.CSIDrivers, &apiclient.CSIDriver{}, &apiclient.CSIDriverList{}},
		{apiclient.CSINodes, &apiclient.CSINode{}, &apiclient.CSINodeList{}},
		{apiclient.VolumeAttachments, &apiclient.VolumeAttachment{}, &apiclient.VolumeAttachmentList{}},
		{apiclient.ResourceSlices, &resourcev1.ResourceSlice{}, &resourcev1.ResourceSliceList{}},
	} {
		out[k.resource.Group+"/"+k.resource.Version+"/"+k.resource.Name] = k
	}
	return out
}

// kindOf finds the kind of an object by its Go type.
func (s *Server) kindOf(obj runtime.Object) (kind, error) {
	gvks, _, err := s.scheme.ObjectKinds(obj)
	if err != nil {
		return kind{}, err
	}
	for _, k := range s.kinds {
		if have, _, err := s.scheme.ObjectKinds(k.object); err == nil && have[0] == gvks[0] {
			return k, nil
		}
	}
	return kind{}, runtime.NewNotRegisteredErrForKind(s.scheme.Name(), gvks[0])
}

// typed sets what an object says of its type, which encoding needs.
func (s *Server) typed(obj runtime.Object) runtime.Object {
	if gvks, _, err := s.scheme.ObjectKinds(obj); err == nil {
		obj.GetObjectKind().SetGroupVersionKind(gvks[0])
	}
	return obj
}

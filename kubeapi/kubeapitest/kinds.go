package kubeapitest

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

	"github.com/nodewright/nodewright/kubeapi"
)

type object interface {
	runtime.Object
	metav1.Object
}

// kind is a resource with its Go types.
type kind struct {
	resource kubeapi.Resource
	object   object         // an empty one
	list     runtime.Object // an empty one
}

func kinds() map[string]kind {
	out := map[string]kind{}
	for _, k := range []kind{
		{kubeapi.Pods, &v1.Pod{}, &v1.PodList{}},
		{kubeapi.Nodes, &v1.Node{}, &v1.NodeList{}},
		{kubeapi.ConfigMaps, &v1.ConfigMap{}, &v1.ConfigMapList{}},
		{kubeapi.Secrets, &v1.Secret{}, &v1.SecretList{}},
		{kubeapi.Services, &v1.Service{}, &v1.ServiceList{}},
		{kubeapi.ServiceAccounts, &v1.ServiceAccount{}, &v1.ServiceAccountList{}},
		{kubeapi.Namespaces, &v1.Namespace{}, &v1.NamespaceList{}},
		{kubeapi.Events, &v1.Event{}, &v1.EventList{}},
		{kubeapi.PersistentVolumes, &v1.PersistentVolume{}, &v1.PersistentVolumeList{}},
		{kubeapi.PersistentVolumeClaims, &v1.PersistentVolumeClaim{}, &v1.PersistentVolumeClaimList{}},
		{kubeapi.Leases, &coordinationv1.Lease{}, &coordinationv1.LeaseList{}},
		{kubeapi.CSRs, &certificatesv1.CertificateSigningRequest{}, &certificatesv1.CertificateSigningRequestList{}},
		{kubeapi.TokenReviews, &authenticationv1.TokenReview{}, nil},
		{kubeapi.AccessReviews, &authorizationv1.SubjectAccessReview{}, nil},
		{kubeapi.RuntimeClasses, &nodev1.RuntimeClass{}, &nodev1.RuntimeClassList{}},
		{kubeapi.ResourceClaims, &resourcev1.ResourceClaim{}, &resourcev1.ResourceClaimList{}},
		{kubeapi.ClusterTrustBundles, &certificatesv1beta1.ClusterTrustBundle{}, &certificatesv1beta1.ClusterTrustBundleList{}},
		{kubeapi.PodCertificateRequests, &certificatesv1.PodCertificateRequest{}, &certificatesv1.PodCertificateRequestList{}},
		{kubeapi.PodCertificateRequestsV1beta1, &certificatesv1beta1.PodCertificateRequest{}, &certificatesv1beta1.PodCertificateRequestList{}},
		{kubeapi.CSIDrivers, &storagev1.CSIDriver{}, &storagev1.CSIDriverList{}},
		{kubeapi.CSINodes, &storagev1.CSINode{}, &storagev1.CSINodeList{}},
		{kubeapi.VolumeAttachments, &storagev1.VolumeAttachment{}, &storagev1.VolumeAttachmentList{}},
		{kubeapi.ResourceSlices, &resourcev1.ResourceSlice{}, &resourcev1.ResourceSliceList{}},
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

// typed sets an object's type meta, which encoding needs.
func (s *Server) typed(obj runtime.Object) runtime.Object {
	if gvks, _, err := s.scheme.ObjectKinds(obj); err == nil {
		obj.GetObjectKind().SetGroupVersionKind(gvks[0])
	}
	return obj
}

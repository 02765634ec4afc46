package apiclient

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

type (
	// PodCertificateRequest asks a signer for a pod's certificate (KEP-4317).
	PodCertificateRequest = Object[PodCertificateRequestSpec, PodCertificateRequestStatus]
	// PodCertificateRequestList lists them.
	PodCertificateRequestList = List[PodCertificateRequestSpec, PodCertificateRequestStatus]
)

// PodCertificateRequestSpec says for whom the certificate is. The API server checks
// that the names belong together and that the node has the pod.
type PodCertificateRequestSpec struct {
	SignerName         string         `json:"signerName"`
	PodName            string         `json:"podName"`
	PodUID             types.UID      `json:"podUID"`
	ServiceAccountName string         `json:"serviceAccountName"`
	ServiceAccountUID  types.UID      `json:"serviceAccountUID"`
	NodeName           types.NodeName `json:"nodeName"`
	NodeUID            types.UID      `json:"nodeUID"`
	// MaxExpirationSeconds is the longest life of the certificate; nil is a day.
	MaxExpirationSeconds *int32 `json:"maxExpirationSeconds,omitempty"`
	// StubPKCS10Request is a request of PKCS #10 in DER, of which only the key and the
	// signature count.
	StubPKCS10Request []byte `json:"stubPKCS10Request"`
	// UnverifiedUserAnnotations are the pod author's words to the signer.
	UnverifiedUserAnnotations map[string]string `json:"unverifiedUserAnnotations,omitempty"`
}

// PodCertificateRequestStatus is the signer's answer.
type PodCertificateRequestStatus struct {
	// Conditions have at most one of Issued, Denied and Failed.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// CertificateChain is in PEM, the pod's certificate first.
	CertificateChain string       `json:"certificateChain,omitempty"`
	NotBefore        *metav1.Time `json:"notBefore,omitempty"`
	BeginRefreshAt   *metav1.Time `json:"beginRefreshAt,omitempty"`
	NotAfter         *metav1.Time `json:"notAfter,omitempty"`
}

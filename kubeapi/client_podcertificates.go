package kubeapi

import certificatesv1 "k8s.io/api/certificates/v1"

type (
	// PodCertificateRequestV1beta1 asks a signer for a pod's certificate (KEP-4317) on
	// API servers before Kubernetes 1.37, which have no v1 of it. Its deprecated
	// pkixPublicKey and proofOfPossession are left out: stubPKCS10Request replaces both.
	PodCertificateRequestV1beta1 = Object[certificatesv1.PodCertificateRequestSpec, certificatesv1.PodCertificateRequestStatus]
	// PodCertificateRequestListV1beta1 lists them.
	PodCertificateRequestListV1beta1 = List[certificatesv1.PodCertificateRequestSpec, certificatesv1.PodCertificateRequestStatus]
)

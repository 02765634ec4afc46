package kubeapi_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
)

// authority signs what it is asked for.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	life time.Duration
	skew time.Duration // of its clock
	n    int64
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{key: key, life: 100 * time.Hour, cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1e6 * time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}}
}

func (a *authority) issue(t testing.TB, r *x509.CertificateRequest, public crypto.PublicKey) []byte {
	t.Helper()
	a.n++
	now := time.Now().Add(a.skew)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(a.n + 1), Subject: r.Subject, DNSNames: r.DNSNames, IPAddresses: r.IPAddresses,
		NotBefore: now.Add(-5 * time.Minute), NotAfter: now.Add(a.life),
	}, a.cert, public, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// pair makes one without a server.
func (a *authority) pair(t testing.TB, r *x509.CertificateRequest) (certPEM, keyPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return a.issue(t, r, key.Public()), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// approve signs the requests that nothing has become of, and returns how many.
func (a *authority) approve(t testing.TB, srv *kubeapitest.Server) (n int) {
	t.Helper()
	for _, obj := range srv.All(kubeapi.CSRs) {
		csr := obj.(*certificatesv1.CertificateSigningRequest)
		if len(csr.Status.Certificate)+len(csr.Status.Conditions) > 0 {
			continue
		}
		block, _ := pem.Decode(csr.Spec.Request)
		req, err := x509.ParseCertificateRequest(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: "True"}}
		csr.Status.Certificate = a.issue(t, req, req.PublicKey)
		srv.Put(csr)
		n++
	}
	return n
}

// deny refuses them.
func deny(srv *kubeapitest.Server) {
	for _, obj := range srv.All(kubeapi.CSRs) {
		csr := obj.(*certificatesv1.CertificateSigningRequest)
		if len(csr.Status.Conditions) > 0 {
			continue
		}
		csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied, Status: "True", Reason: "no"}}
		srv.Put(csr)
	}
}

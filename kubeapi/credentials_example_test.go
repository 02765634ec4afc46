package kubeapi_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log"
	"math/big"
	"os"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
)

// A node asks for its first certificate with a token for that, and gets one when
// somebody approves.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	dir, err := os.MkdirTemp("", "pki")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	server := kubeapitest.New() // a rest.Config from a bootstrap kubeconfig leads to a real one
	bootstrap, err := kubeapi.New(kubeapi.Config{REST: server.Config()})
	if err != nil {
		log.Fatal(err)
	}
	m, err := kubeapi.NewCredentials(kubeapi.CredentialsConfig{
		Store:     &kubeapi.CertificateStore{Dir: dir, Prefix: "kubelet-client"},
		Bootstrap: bootstrap,
		Template:  func() *x509.CertificateRequest { return kubeapi.ClientCertificateTemplate("edge-1") },
	})
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = m.Run(ctx) }()
	go approve(ctx, server)

	<-m.Ready()
	cert, err := m.ClientCertificate() // what kubeapi.Config.Certificate is for
	fmt.Println(cert.Leaf.Subject.CommonName, cert.Leaf.Subject.Organization, err)
	cancel()
	<-ended
	// Output:
	// system:node:edge-1 [system:nodes] <nil>
}

// approve is whoever signs in a cluster.
func approve(ctx context.Context, server *kubeapitest.Server) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}}
	for ctx.Err() == nil {
		for _, obj := range server.All(kubeapi.CSRs) {
			csr := obj.(*certificatesv1.CertificateSigningRequest)
			if len(csr.Status.Certificate) > 0 {
				continue
			}
			block, _ := pem.Decode(csr.Spec.Request)
			asked, err := x509.ParseCertificateRequest(block.Bytes)
			if err != nil {
				log.Fatal(err)
			}
			cert := &x509.Certificate{
				SerialNumber: big.NewInt(2), Subject: asked.Subject, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
			}
			der, err := x509.CreateCertificate(rand.Reader, cert, ca, asked.PublicKey, key)
			if err != nil {
				log.Fatal(err)
			}
			csr.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
			server.Put(csr)
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

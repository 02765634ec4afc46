package auth

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"time"
)

// ClientCerts knows users by the certificate of their connection: its common
// name is the user, its organizations are the groups. pool is asked at each
// request for those who may sign, and may return nil for nobody.
//
// The connection only has to ask for a certificate (tls.RequestClientCert):
// it is verified here, against the pool of this moment.
func ClientCerts(pool func() *x509.CertPool) Authenticator {
	return AuthenticatorFunc(func(r *http.Request) (*User, error) {
		if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
			return nil, nil
		}
		roots := pool()
		if roots == nil {
			return nil, nil
		}
		leaf := r.TLS.PeerCertificates[0]
		opts := x509.VerifyOptions{
			Roots: roots, Intermediates: x509.NewCertPool(), CurrentTime: time.Now(),
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
		for _, c := range r.TLS.PeerCertificates[1:] {
			opts.Intermediates.AddCert(c)
		}
		if _, err := leaf.Verify(opts); err != nil {
			return nil, fmt.Errorf("client certificate of %q: %w", leaf.Subject.CommonName, err)
		}
		if leaf.Subject.CommonName == "" {
			return nil, nil // nobody's
		}
		return &User{Name: leaf.Subject.CommonName, Groups: leaf.Subject.Organization}, nil
	})
}

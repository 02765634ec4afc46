package auth

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"time"
)

// ClientCerts authenticates users by the client certificate of their connection: the common name
// is the user, and the organizations are the groups. It calls pool for each request. pool returns
// the accepted authorities, or nil if there are none.
//
// The connection must request a certificate (tls.RequestClientCert). ClientCerts verifies it
// against the authorities.
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
			return nil, fmt.Errorf("verify client certificate of %q: %w", leaf.Subject.CommonName, err)
		}
		if leaf.Subject.CommonName == "" {
			return nil, nil // no authorities are accepted
		}
		return &User{Name: leaf.Subject.CommonName, Groups: leaf.Subject.Organization}, nil
	})
}

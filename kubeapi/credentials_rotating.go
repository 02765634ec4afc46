package kubeapi

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"

	"k8s.io/client-go/rest"
)

// RotatingConfig takes the client certificate out of what [LoadCredentials] returned, for a
// Credentials that replaces it (CredentialsConfig.Initial); nil if there is none, as when it
// is yet to be asked for or a token is all there is. What is left says which
// server it is and how often it may be called.
func RotatingConfig(user *rest.Config) (server *rest.Config, initial *tls.Certificate, err error) {
	server = rest.AnonymousClientConfig(user)
	server.QPS, server.Burst = user.QPS, user.Burst
	certPEM, err := dataOf(user.CertData, user.CertFile)
	if err != nil {
		return nil, nil, fmt.Errorf("client certificate: %w", err)
	}
	keyPEM, err := dataOf(user.KeyData, user.KeyFile)
	if err != nil {
		return nil, nil, fmt.Errorf("key of the client certificate: %w", err)
	}
	if len(certPEM) == 0 || len(keyPEM) == 0 {
		return server, nil, nil
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, nil, fmt.Errorf("client certificate: %w", err)
	}
	return server, &pair, nil
}

// dataOf is what is given, or else a file's content; nil if the file is yet to
// come.
func dataOf(data []byte, file string) ([]byte, error) {
	if len(data) > 0 || file == "" {
		return data, nil
	}
	b, err := readFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

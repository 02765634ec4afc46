package kubeapi

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"

	"k8s.io/client-go/rest"
)

// RotatingConfig separates the client certificate from the result of
// [LoadCredentials], for Credentials that replace it (CredentialsConfig.Initial).
// initial is nil if there is no certificate, because it has to be requested or only
// a token is used. server has the server's address and the rate limit.
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

// dataOf returns data if it is given, or else a file's content; nil if the file
// does not exist yet.
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

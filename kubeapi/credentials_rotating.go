package kubeapi

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"

	"k8s.io/client-go/rest"
)

// RotatingConfig splits the result user of [LoadCredentials] into two parts. server has
// the address of the API server and the rate limit. initial is the client certificate,
// for CredentialsConfig.Initial; it is nil if a certificate has to be requested first,
// or if only a token is used.
func RotatingConfig(user *rest.Config) (server *rest.Config, initial *tls.Certificate, err error) {
	server = rest.AnonymousClientConfig(user)
	server.QPS, server.Burst = user.QPS, user.Burst
	certPEM, err := dataOf(user.CertData, user.CertFile)
	if err != nil {
		return nil, nil, fmt.Errorf("read client certificate: %w", err)
	}
	keyPEM, err := dataOf(user.KeyData, user.KeyFile)
	if err != nil {
		return nil, nil, fmt.Errorf("read key of the client certificate: %w", err)
	}
	if len(certPEM) == 0 || len(keyPEM) == 0 {
		return server, nil, nil
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, nil, fmt.Errorf("read client certificate: %w", err)
	}
	return server, &pair, nil
}

// dataOf returns data, or the content of the file if data is empty. It returns nil if the file
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

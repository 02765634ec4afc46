package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/server"
	"github.com/nodewright/nodewright/server/auth"
)

// ownPods is whatever an embedding runs.
type ownPods struct{}

func (ownPods) Pods() []*v1.Pod {
	return []*v1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "camera"}}}
}

// A node's API with pods of one's own, and a token that only the operator has.
func Example() {
	dir, err := os.MkdirTemp("", "pki")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	certs, err := server.NewCerts(server.CertsConfig{CertDir: dir, Host: "edge-1", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		panic(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	s, err := server.New(server.Config{
		Node: "edge-1", Main: listener, TLS: certs.TLS(), Pods: ownPods{},
		Authenticator: auth.AuthenticatorFunc(func(r *http.Request) (*auth.User, error) {
			if r.Header.Get("Authorization") != "Bearer operator" {
				return nil, nil
			}
			return &auth.User{Name: "operator"}, nil
		}),
		Authorizer: auth.AlwaysAllow(),
	})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()

	pem, err := os.ReadFile(filepath.Join(dir, "kubelet.crt"))
	if err != nil {
		panic(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	ask := func(token, path string) {
		req, err := http.NewRequest(http.MethodGet, "https://"+listener.Addr().String()+path, nil)
		if err != nil {
			panic(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := client.Do(req)
		if err != nil {
			panic(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		fmt.Println(path, resp.StatusCode, len(body) > 0)
	}
	ask("operator", "/pods")
	ask("operator", "/healthz")
	ask("somebody", "/pods")
	client.CloseIdleConnections()
	stop()
	fmt.Println(<-done)
	// Output:
	// /pods 200 true
	// /healthz 200 true
	// /pods 401 true
	// <nil>
}

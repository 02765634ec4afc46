package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strings"
	"time"

	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/node"
	"github.com/nodewright/nodewright/nodeagent"
	"github.com/nodewright/nodewright/nodeagent/internal/kubemetrics"
)

// heartbeats returns a separate client for the Node and its lease.
type heartbeats func(lease time.Duration) (*kubeapi.Client, error)

// clients creates the client of the API server. If the configuration says so, the client's
// certificate is rotated. It returns a function that creates the client for heartbeats.
func (cl *cluster) clients(b *nodeagent.Builder, met *kubemetrics.Metrics) (heartbeats, error) {
	c, log := b.Config, b.Log.Named("credentials")
	store := &kubeapi.CertificateStore{Dir: c.CertDir, Prefix: "kubelet-client"}
	user, bootstrap, err := kubeapi.LoadCredentials(kubeapi.CredentialFiles{
		Kubeconfig: c.Kubeconfig, Bootstrap: c.BootstrapKubeconfig, Current: store.CurrentPath(),
	}, time.Now())
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig=%q: %w", c.Kubeconfig, err)
	}
	b.Claim(node.Claim{Kind: "node name", Name: strings.TrimSuffix(user.Host, "/") + "/" + cl.name, Set: "--hostname-override"})
	user.Transport = cl.transport
	user.QPS, user.Burst = float32(*c.KubeAPIQPS), int(c.KubeAPIBurst)
	anonymous, initial, err := kubeapi.RotatingConfig(user)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig=%q: %w", c.Kubeconfig, err)
	}
	rotates := bootstrap != nil || c.RotateCertificates && initial != nil
	var certificate func() (*tls.Certificate, error) // nil: the certificate of the kubeconfig
	if rotates {
		user = anonymous
		certificate = func() (*tls.Certificate, error) { return cl.own.ClientCertificate() }
	}
	if cl.client, err = kubeapi.New(kubeapi.Config{REST: user, Certificate: certificate, Observer: met}); err != nil {
		return nil, err
	}
	cl.unbounded = func() (*kubeapi.Client, error) {
		free := *user
		free.QPS = -1
		return kubeapi.New(kubeapi.Config{REST: &free, Certificate: certificate})
	}
	if rotates {
		cfg := kubeapi.CredentialsConfig{
			Store: store, API: cl.client, Initial: initial,
			Template:         func() *x509.CertificateRequest { return kubeapi.ClientCertificateTemplate(cl.name) },
			CloseConnections: cl.closeConnections, Log: log, Metrics: b.Metrics,
		}
		if bootstrap != nil {
			if cfg.Bootstrap, err = kubeapi.New(kubeapi.Config{REST: bootstrap, Observer: met}); err != nil {
				return nil, err
			}
		}
		if cl.own, err = kubeapi.NewCredentials(cfg); err != nil {
			return nil, err
		}
	}
	if c.ServerTLSBootstrap {
		cl.serving, err = kubeapi.NewCredentials(kubeapi.CredentialsConfig{
			Purpose: kubeapi.ServingCertificate, Store: &kubeapi.CertificateStore{Dir: c.CertDir, Prefix: "kubelet-server"}, API: cl.client,
			Template: func() *x509.CertificateRequest {
				n, _ := cl.node.Node()
				if n == nil {
					return nil
				}
				return kubeapi.ServingCertificateTemplate(cl.name, n.Status.Addresses, true)
			},
			Log: log, Metrics: b.Metrics,
		})
	}
	return func(lease time.Duration) (*kubeapi.Client, error) {
		return kubeapi.HeartbeatClient(user, lease, func(a *kubeapi.Config) { a.Certificate, a.Observer = certificate, met })
	}, err
}

// closeConnections closes connections that use an earlier certificate.
func (cl *cluster) closeConnections() {
	cl.client.CloseConnections()
	cl.heartbeat.CloseConnections()
}

// reviewer returns the reviewer of users of the node's API. Its client has a rate
// limit of its own: a sender of many wrong tokens must not delay the node's
// statuses. Package server limits the calls.
func (cl *cluster) reviewer() (nodeagent.Reviewer, error) {
	c, err := cl.unbounded()
	if err != nil {
		return nil, err
	}
	return kubeapi.NewReviewer(c.Once())
}

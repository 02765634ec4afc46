package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"time"

	"github.com/nodewright/nodewright/kubeapi/apiclient"
	"github.com/nodewright/nodewright/kubeapi/credentials"
	kubenode "github.com/nodewright/nodewright/kubeapi/node"

	"github.com/nodewright/nodewright/nodeagent"
	"github.com/nodewright/nodewright/nodeagent/internal/kubemetrics"
)

// heartbeats makes a client of its own for the Node and its lease.
type heartbeats func(lease time.Duration) (*apiclient.Client, error)

// clients makes the API client, with a certificate that is kept fresh if that
// is asked for, and returns how the heartbeat's is made.
func (cl *cluster) clients(b *nodeagent.Builder, met *kubemetrics.Metrics) (heartbeats, error) {
	c, log := b.Config, b.Log.Named("credentials")
	store := &credentials.Store{Dir: c.CertDir, Prefix: "kubelet-client"}
	user, bootstrap, err := credentials.Load(credentials.Files{
		Kubeconfig: c.Kubeconfig, Bootstrap: c.BootstrapKubeconfig, Current: store.CurrentPath(),
	}, time.Now())
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig=%q: %w", c.Kubeconfig, err)
	}
	user.Transport = cl.transport
	user.QPS, user.Burst = float32(*c.KubeAPIQPS), int(c.KubeAPIBurst)
	anonymous, initial, err := credentials.Rotating(user)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig=%q: %w", c.Kubeconfig, err)
	}
	rotates := bootstrap != nil || c.RotateCertificates && initial != nil
	var certificate func() (*tls.Certificate, error) // nil: that of the kubeconfig
	if rotates {
		user = anonymous
		certificate = func() (*tls.Certificate, error) { return cl.own.ClientCertificate() }
	}
	if cl.client, err = apiclient.New(apiclient.Config{REST: user, Certificate: certificate, Observer: met}); err != nil {
		return nil, err
	}
	cl.unbounded = func() (*apiclient.Client, error) {
		free := *user
		free.QPS = -1
		return apiclient.New(apiclient.Config{REST: &free, Certificate: certificate})
	}
	if rotates {
		cfg := credentials.Config{
			Store: store, API: cl.client, Initial: initial,
			Template:         func() *x509.CertificateRequest { return credentials.ClientTemplate(cl.name) },
			CloseConnections: cl.closeConnections, Log: log, Metrics: b.Metrics,
		}
		if bootstrap != nil {
			if cfg.Bootstrap, err = apiclient.New(apiclient.Config{REST: bootstrap, Observer: met}); err != nil {
				return nil, err
			}
		}
		if cl.own, err = credentials.New(cfg); err != nil {
			return nil, err
		}
	}
	if c.ServerTLSBootstrap {
		cl.serving, err = credentials.New(credentials.Config{
			Purpose: credentials.Server, Store: &credentials.Store{Dir: c.CertDir, Prefix: "kubelet-server"}, API: cl.client,
			Template: func() *x509.CertificateRequest {
				n, _ := cl.node.Node()
				if n == nil {
					return nil
				}
				return credentials.ServerTemplate(cl.name, n.Status.Addresses, true)
			},
			Log: log, Metrics: b.Metrics,
		})
	}
	return func(lease time.Duration) (*apiclient.Client, error) {
		return kubenode.Heartbeat(user, lease, func(a *apiclient.Config) { a.Certificate, a.Observer = certificate, met })
	}, err
}

// closeConnections ends those that were made with a certificate of before.
func (cl *cluster) closeConnections() {
	cl.client.CloseConnections()
	cl.heartbeat.CloseConnections()
}

// reviewer asks the API server who may use the node's API. Its client has no
// part in the budget of the others: who sends a node many wrong tokens must not
// hold up its statuses. Package auth bounds how much is asked.
func (cl *cluster) reviewer() (nodeagent.Reviewer, error) {
	c, err := cl.unbounded()
	if err != nil {
		return nil, err
	}
	return credentials.NewReviewer(c.Once())
}

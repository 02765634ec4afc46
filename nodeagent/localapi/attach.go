package localapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/internal/httpbound"
	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/localapi"
	"github.com/nodewright/nodewright/localapi/store"
	"github.com/nodewright/nodewright/node"
	"github.com/nodewright/nodewright/nodeagent"
)

// Config configures the local API. The zero value of every field means the default
// named beside it.
type Config struct {
	// Dir is the directory of the objects; "api" in the manifests directory, or in
	// the root directory if there is none.
	Dir string
	// Address is where the API is served with TLS, such as 127.0.0.1:6443; none:
	// only on the agent's socket.
	Address string
	// Names are additional host names of the API, beside localhost, the node's own
	// and the host of Address; none.
	Names []string
}

// authorityDir returns the directory of the authority that signs clients' certificates.
func authorityDir(rootDir string) string { return filepath.Join(rootDir, "localapi") }

// dir returns the directory of the objects.
func (c Config) dir(conf *kubeletconfig.Config) string {
	if c.Dir != "" {
		return c.Dir
	}
	if fi, err := os.Stat(conf.StaticPodPath); conf.StaticPodPath != "" && (err != nil || fi.IsDir()) {
		return filepath.Join(conf.StaticPodPath, "api")
	}
	return filepath.Join(conf.RootDir, "api")
}

// Attach adds a local API to a node made from o. Options.Config must be set before,
// and the node must not join a cluster: otherwise New returns an error.
func Attach(o *nodeagent.Options, cfg Config) {
	a := &attached{cfg: cfg, conf: o.Config}
	before := o.Agent
	o.Agent = func(c *agent.Config) {
		if before != nil {
			before(c)
		}
		a.plug(c)
	}
	// This service runs before the socket's, which serves the handlers that exist when it is made.
	o.Services = append([]nodeagent.Service{a.service}, o.Services...)
}

// attached is the API of one node.
type attached struct {
	cfg  Config
	conf *kubeletconfig.Config
	err  error

	api  *localapi.Server
	sink *sink
	node atomic.Pointer[nodeagent.Node]
	// inner is the handler of the node's own API; nil until it is created.
	inner atomic.Pointer[http.Handler]
}

// plug creates the API, and sets it in the configuration of the agent.
func (a *attached) plug(c *agent.Config) {
	if a.conf.Kubeconfig != "" {
		a.err = fmt.Errorf("the API of one node is for a node without a cluster; kubeconfig is %s", a.conf.Kubeconfig)
		return
	}
	log := c.Log
	if log == nil {
		log = zap.NewNop()
	}
	info, err := nodeagent.VersionInfo(nodeagent.KubernetesVersion())
	if err != nil {
		a.err = err
		return
	}
	if a.api, a.err = localapi.New(localapi.Config{
		Node: c.Node.Name, Store: store.NewDir(a.cfg.dir(a.conf)), Version: info, Log: log.Named("localapi"),
		Describe: a.describe, Kubelet: http.HandlerFunc(a.serveInner),
	}); a.err != nil {
		return
	}
	for i, s := range c.Sources {
		c.Sources[i] = a.api.Show(s)
	}
	c.Sources = append(c.Sources, a.api.Source())
	a.sink = &sink{api: a.api, next: c.Status.Sink}
	c.Status.Sink = a.sink
	events := local.EventRecorders{a.api}
	if c.Events != nil {
		events = append(events, c.Events)
	}
	c.Events = events
	c.Cluster.NodeLabels = a.api.NodeLabels
}

func (a *attached) describe(ctx context.Context, n *v1.Node) error {
	if d := a.node.Load(); d != nil {
		d.DescribeNode(ctx, n)
		return nil
	}
	return errors.New("the node has not been built yet")
}

func (a *attached) serveInner(w http.ResponseWriter, r *http.Request) {
	h := a.inner.Load()
	if h == nil {
		http.Error(w, "the node has not been built yet", http.StatusServiceUnavailable)
		return
	}
	(*h).ServeHTTP(w, r)
}

// service serves the API.
func (a *attached) service(n *nodeagent.Node) (string, func(context.Context) error, error) {
	if a.err != nil {
		return "", nil, a.err
	}
	n.Builder().Claim(node.Claim{Kind: "directory of API objects", Name: a.cfg.dir(a.conf), Set: "staticPodPath (--pod-manifest-path)"})
	if _, port, err := net.SplitHostPort(a.cfg.Address); err == nil && port != "0" {
		n.Builder().Claim(node.Claim{Kind: "port", Name: a.cfg.Address, Set: "the address of the node's Kubernetes API (--local-api)"})
	}
	inner, err := n.InnerAPI()
	if err != nil {
		return "", nil, err
	}
	h := inner.Handler()
	a.inner.Store(&h)
	a.node.Store(n)
	n.OnPods(a.api.Unplaced)
	root := a.api.Handler(localapi.Root)
	for _, pattern := range []string{"/api", "/api/", "/apis", "/apis/", "/openapi/", "/version"} {
		n.OnSocket(pattern, root)
	}
	return "local API", func(ctx context.Context) error { return a.run(ctx, n) }, nil
}

func (a *attached) run(ctx context.Context, n *nodeagent.Node) error {
	g, ctx := errgroup.WithContext(ctx)
	// Before the API answers: a pod that runs must not be shown as Pending.
	if _, err := a.sink.Load(ctx); err != nil {
		n.Builder().Log.Named("localapi").Warn("failed to read stored pod statuses", zap.Error(err))
	}
	g.Go(func() error { return a.api.Run(ctx) })
	if a.cfg.Address != "" {
		g.Go(func() error { return a.serve(ctx, n) })
	}
	return g.Wait()
}

// serve serves the API by TLS.
func (a *attached) serve(ctx context.Context, n *nodeagent.Node) error {
	log := n.Builder().Log.Named("localapi")
	dir := authorityDir(a.conf.RootDir)
	authority, err := localapi.OpenAuthority(dir)
	if err != nil {
		return fmt.Errorf("authority of the local API: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", a.cfg.Address)
	if err != nil {
		return nodeagent.Vital(fmt.Errorf("local API at %s: %w", a.cfg.Address, err)) // the address was configured explicitly
	}
	host, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return err
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = cmp.Or(first(n.Builder().Node.IPs), "127.0.0.1")
	}
	names := append([]string{"localhost", "127.0.0.1", "::1", host, n.Builder().Node.Name}, n.Builder().Node.IPs...)
	if err := localapi.SetServerURL(dir, "https://"+net.JoinHostPort(host, port)); err != nil {
		log.Warn("failed to store address of local API", zap.Error(err))
	}
	srv := httpbound.New(httpbound.Config{
		Handler: a.api.Handler(localapi.Certificates), TLS: authority.TLS(append(names, a.cfg.Names...)), HTTP2: true, MaxHead: 1 << 18, Connections: maxConnections, Log: log,
	})
	log.Info("listening", zap.Stringer("address", l.Addr()))
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// maxConnections limits the concurrent connections.
const maxConnections = 1024

// Kubeconfig returns a kubeconfig for a client of the API of the node with a root
// directory, signed by its authority there. If url is "", the last address of the API
// is used. The agent need not run.
func Kubeconfig(rootDir, url, user string, groups []string, valid time.Duration) ([]byte, error) {
	dir := authorityDir(rootDir)
	if url == "" {
		var err error
		if url, err = localapi.ServerURL(dir); err != nil {
			return nil, fmt.Errorf("no agent with --local-api has run with root directory %s: %w", rootDir, err)
		}
	}
	authority, err := localapi.OpenAuthority(dir)
	if err != nil {
		return nil, err
	}
	cert, key, err := authority.Client(user, groups, valid)
	if err != nil {
		return nil, err
	}
	return authority.Kubeconfig(url, user, cert, key), nil
}

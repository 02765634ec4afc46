package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/kubeapi/reviews"
	"github.com/nodewright/nodewright/server"
	"github.com/nodewright/nodewright/server/auth"
	"github.com/nodewright/nodewright/server/serving"
	usagemetrics "github.com/nodewright/nodewright/server/usage"
)

// nodeServer is the node's API over HTTPS, which a cluster needs, and its
// read-only part over HTTP, which anybody may be given.
type nodeServer struct {
	server *server.Server
	certs  *serving.Certs // nil without HTTPS
}

// newNodeServer makes it; nil if neither is asked for. An agent that runs alone
// has nobody to ask who may use HTTPS, and goes without.
func newNodeServer(d *doors) (*nodeServer, error) {
	c, a := d.conf, d.agent
	main := d.cluster != nil && *c.EnableServer
	if !main && c.ReadOnlyPort == 0 {
		return nil, nil //nolint:nilnil // there is nothing to serve
	}
	gatherers, err := gatherers(a, d.runtime, d.reg)
	if err != nil {
		return nil, err
	}
	cfg := server.Config{
		Node: d.node.Name, ReadOnlyPort: int(c.ReadOnlyPort), Address: c.Address,
		EnableDebuggingHandlers: *c.EnableDebuggingHandlers, EnableProfilingHandler: *c.EnableProfilingHandler,
		EnableSystemLogHandler: *c.EnableSystemLogHandler, EnableSystemLogQuery: *c.EnableSystemLogQuery,
		EnableDebugFlagsHandler: *c.EnableDebugFlagsHandler,
		Pods:                    a, Running: a, Instances: instances{a}, Runtime: d.runtime, Checkpoint: d.runtime, Logs: instances{a},
		Stats: statistics{a}, Gatherers: gatherers, PodLogsDir: c.PodLogsDir, CheckpointDir: filepath.Join(d.flags.rootDir, "checkpoints"),
		Configz: func() any { return configzOf(c) }, Flags: d.flags.all, LogLevel: d.level,
		Health:       d.checks,
		DisableHTTP2: os.Getenv("DISABLE_HTTP2") != "", // as the kubelet's
		Log:          d.log.Named("server"), Metrics: d.reg,
	}
	applyGates(&cfg, c.FeatureGates)
	n := &nodeServer{}
	if main {
		if err := n.secure(&cfg, d.flags, c, d.cluster, d.node, d.log); err != nil {
			return nil, err
		}
	}
	n.server, err = server.New(cfg)
	return n, err
}

// secure adds HTTPS, and who may use it.
func (n *nodeServer) secure(cfg *server.Config, f *runFlags, c *kubeletconfig.KubeletConfiguration, cl *cluster, node agent.Node, log *zap.Logger) error {
	certs := serving.Config{
		CertFile: c.TLSCertFile, KeyFile: c.TLSPrivateKeyFile, CertDir: f.certDir, Host: node.Name,
		ClientCAFile: c.Authentication.X509.ClientCAFile,
		Options:      serving.Options{CipherSuites: c.TLSCipherSuites, MinVersion: c.TLSMinVersion, Curves: c.TLSCurvePreferences},
		Log:          log.Named("serving"),
	}
	for _, ip := range node.IPs {
		certs.IPs = append(certs.IPs, net.ParseIP(ip))
	}
	if cl.serving != nil {
		certs.Certificate = cl.serving.Current
	}
	var err error
	if n.certs, err = serving.New(certs); err != nil {
		return err
	}
	reviewer, err := cl.reviewer()
	if err != nil {
		return err
	}
	who := []auth.Authenticator{auth.ClientCerts(n.certs.ClientCAs)}
	if *c.Authentication.Webhook.Enabled {
		who = append(who, auth.Tokens(auth.TokensConfig{TTL: c.Authentication.Webhook.CacheTTL.Duration, Reviewer: reviewer}))
	}
	cfg.Authenticator = auth.FirstOf(who...)
	if *c.Authentication.Anonymous.Enabled {
		cfg.Authenticator = auth.Anonymous(cfg.Authenticator)
	}
	cfg.Authorizer = auth.AlwaysAllow()
	if c.Authorization.Mode == kubeletconfig.KubeletAuthorizationModeWebhook {
		w := c.Authorization.Webhook
		cfg.Authorizer = auth.Access(auth.AccessConfig{
			Reviewer: reviewer, AllowTTL: w.CacheAuthorizedTTL.Duration, DenyTTL: w.CacheUnauthorizedTTL.Duration,
		})
	}
	cfg.Port, cfg.TLS = int(c.Port), n.certs.TLS()
	return nil
}

// reviewer asks the API server who may use the node's API. Its client has no
// part in the budget of the others: who sends a node many wrong tokens must not
// hold up its statuses. Package auth bounds how much is asked.
func (cl *cluster) reviewer() (*reviews.Reviewer, error) {
	c, err := cl.unbounded()
	if err != nil {
		return nil, err
	}
	return reviews.New(c.Once())
}

// run serves until ctx ends.
func (n *nodeServer) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	if n.certs != nil {
		g.Go(func() error { return n.certs.Run(ctx) })
	}
	g.Go(func() error { return n.server.Run(ctx) })
	return g.Wait()
}

// instances finds the agent's containers, sandboxes and logs.
type instances struct{ a *agent.Agent }

func (i instances) ContainerID(ctx context.Context, pod types.UID, container string) (string, error) {
	id, err := i.a.ContainerID(ctx, pod, container)
	return id, notFound(err)
}

func (i instances) SandboxID(ctx context.Context, pod types.UID) (string, error) {
	id, err := i.a.SandboxID(ctx, pod)
	return id, notFound(err)
}

func (i instances) LogFile(ctx context.Context, id string) (path string, open bool, err error) {
	path, open, err = i.a.LogFile(ctx, id)
	return path, open, notFound(err)
}

// notFound says in the server's words that something is not there.
func notFound(err error) error {
	if errors.Is(err, local.ErrNotFound) {
		return fmt.Errorf("%w: %w", server.ErrNotFound, err)
	}
	return err
}

// statistics are the agent's.
type statistics struct{ a *agent.Agent }

func (s statistics) Summary(ctx context.Context, cpuAndMemoryOnly bool) (*statsapi.Summary, error) {
	if cpuAndMemoryOnly {
		return s.a.CPUAndMemory(ctx)
	}
	return s.a.Summary(ctx)
}

// scrapeTimeout bounds a scrape of what has to be measured for it.
const scrapeTimeout = 10 * time.Second

// gatherers are the metrics by path.
func gatherers(a *agent.Agent, rt *cri.Client, reg *prometheus.Registry) (map[string]prometheus.Gatherer, error) {
	resources, containers := prometheus.NewRegistry(), prometheus.NewRegistry()
	err := errors.Join(
		resources.Register(usagemetrics.Resource(statistics{a}, scrapeTimeout)),
		containers.Register(usagemetrics.Containers(usagemetrics.Config{
			Stats: statistics{a}, Details: &details{agent: a, runtime: rt}, Machine: machineOf(), Timeout: scrapeTimeout,
		})),
	)
	probes := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		all, err := reg.Gather()
		var out []*dto.MetricFamily
		for _, f := range all {
			if strings.HasPrefix(f.GetName(), "prober_") {
				out = append(out, f)
			}
		}
		return out, err
	})
	return map[string]prometheus.Gatherer{
		"/metrics": reg, "/metrics/resource": resources, "/metrics/cadvisor": containers, "/metrics/probes": probes,
	}, err
}

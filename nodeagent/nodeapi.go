package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/server"
)

// NodeAPI serves the node's API over HTTPS, and its public read-only part over HTTP, on the ports
// of the configuration. Without a cluster users cannot be reviewed: HTTPS then needs client
// certificates or authentication.anonymous, and authorization.mode AlwaysAllow. If no client
// could use the HTTPS API, it is not served, and the reason is logged.
func NodeAPI(n *Node) (name string, run func(context.Context) error, err error) {
	api, err := n.nodeAPI()
	if api == nil || err != nil {
		return "", nil, err
	}
	return "node API", api.run, nil
}

// nodeAPI returns the API that the configuration describes. It returns nil if the configuration
// has no port for it.
func (n *Node) nodeAPI() (*nodeAPI, error) {
	c, cl := n.builder.Config, n.builder.Cluster
	main := *c.EnableServer
	// A port that no client could use is not opened.
	if main && (cl == nil || cl.Reviewer == nil) {
		if err := admitsAlone(c); err != nil {
			n.builder.Log.Warn("node API is not served over HTTPS", zap.Error(err))
			main = false
		}
	}
	if !main && c.ReadOnlyPort == 0 {
		return nil, nil //nolint:nilnil // a node without this service
	}
	// Contention is profiled only if the handler that shows the profile is enabled.
	api := &nodeAPI{contention: main && *c.EnableProfilingHandler && c.EnableContentionProfiling}
	cfg, err := n.api()
	if err != nil {
		return nil, err
	}
	if main {
		if err := api.secure(&cfg, n.builder); err != nil {
			return nil, err
		}
		n.builder.claimPort(c.Address, c.Port, "port (--port)")
	}
	n.builder.claimPort(c.Address, c.ReadOnlyPort, "readOnlyPort (--read-only-port)")
	if api.server, err = server.New(cfg); err != nil {
		return nil, err
	}
	return api, nil
}

// InnerAPI returns the node's API for a service that authenticates requests itself,
// such as an API server on the node. It has no metrics of its own. It is for makers
// of services.
func (n *Node) InnerAPI() (*server.Server, error) {
	cfg, err := n.api()
	if err != nil {
		return nil, err
	}
	cfg.Inner, cfg.ReadOnlyPort, cfg.Metrics = true, 0, nil
	cfg.EnableDebuggingHandlers = true // logs and streams are among them
	return server.New(cfg)
}

// nodeAPI is the HTTP server of the node API (the kubelet's port 10250), with its
// certificates.
type nodeAPI struct {
	server *server.Server
	certs  *server.Certs // nil without HTTPS

	contention bool // profile blocked goroutines while the server runs
}

// api returns the configuration without the main port, for NodeAPI and InnerAPI.
func (n *Node) api() (server.Config, error) {
	b, o := n.builder, &n.options
	c := b.Config
	gatherers, err := n.gatherers()
	if err != nil {
		return server.Config{}, err
	}
	cfg := server.Config{
		Node: b.Node.Name, Version: b.Version.GitVersion, ReadOnlyPort: int(c.ReadOnlyPort), Address: c.Address,
		EnableDebuggingHandlers: *c.EnableDebuggingHandlers, EnableProfilingHandler: *c.EnableProfilingHandler,
		EnableSystemLogHandler: *c.EnableSystemLogHandler, EnableSystemLogQuery: *c.EnableSystemLogQuery,
		EnableDebugFlagsHandler: *c.EnableDebugFlagsHandler,
		Pods:                    n, Running: n, Instances: instances{n}, Runtime: b.Runtime, Checkpoint: b.Runtime, Logs: instances{n},
		Gatherers: gatherers, PodLogsDir: c.PodLogsDir, CheckpointDir: b.Path("checkpoints"),
		Configz: func() any { return c.Redacted() }, Flags: o.Flags, LogLevel: o.LogLevel,
		Health:       n.healthChecks(),
		DisableHTTP2: os.Getenv("DISABLE_HTTP2") != "", // as the kubelet's
		Log:          b.Log.Named("server"), Metrics: b.Metrics,
	}
	// A nil Usage in the interface would not be nil.
	if u := b.Facts.Usage; u != nil {
		cfg.Stats = statistics{u}
	}
	applyGates(&cfg, c.FeatureGates)
	return cfg, nil
}

// secure adds HTTPS with authentication and authorization. The certificate is the cluster's, the
// pair in the configuration's files, or a self-signed one. It returns an error if files cannot be
// used.
func (a *nodeAPI) secure(cfg *server.Config, b *Builder) error {
	c := b.Config
	certs := server.CertsConfig{
		CertFile: c.TLSCertFile, KeyFile: c.TLSPrivateKeyFile, CertDir: c.CertDir, Host: b.Node.Name,
		ClientCAFile: c.Authentication.X509.ClientCAFile,
		Options:      server.TLSOptions{CipherSuites: c.TLSCipherSuites, MinVersion: c.TLSMinVersion, Curves: c.TLSCurvePreferences},
		Log:          b.Log.Named("serving"),
	}
	var reviewer Reviewer
	if cl := b.Cluster; cl != nil {
		certs.Certificate = cl.Certificate
		if cl.Reviewer != nil {
			var err error
			if reviewer, err = cl.Reviewer(); err != nil {
				return err
			}
		}
	}
	// For the self-signed certificate: clients use addresses.
	for _, ip := range b.Node.IPs {
		certs.IPs = append(certs.IPs, net.ParseIP(ip))
	}
	var err error
	if a.certs, err = server.NewCerts(certs); err != nil {
		return err
	}
	cfg.Authenticator, cfg.Authorizer = access(c, a.certs, reviewer, b.Log)
	cfg.Port, cfg.TLS = int(c.Port), a.certs.TLS()
	return nil
}

// run serves until ctx ends. It blocks until both the certificates' renewal and the
// server have ended; the first error ends the other.
func (a *nodeAPI) run(ctx context.Context) error {
	if a.contention {
		runtime.SetBlockProfileRate(1) // every event is recorded, as in the kubelet
		defer runtime.SetBlockProfileRate(0)
	}
	g, ctx := errgroup.WithContext(ctx)
	if a.certs != nil {
		g.Go(func() error { return a.certs.Run(ctx) })
	}
	g.Go(func() error { return a.server.Run(ctx) })
	return g.Wait()
}

// instances finds the node's containers, sandboxes and logs. It returns the not-found errors of
// package server, which answers 404 for them.
type instances struct{ n *Node }

// ContainerID returns the runtime's ID of a pod's container.
func (i instances) ContainerID(ctx context.Context, pod types.UID, container string) (string, error) {
	id, err := i.n.ContainerID(ctx, pod, container)
	return id, notFound(err)
}

// SandboxID returns the runtime's ID of a pod's sandbox.
func (i instances) SandboxID(ctx context.Context, pod types.UID) (string, error) {
	id, err := i.n.SandboxID(ctx, pod)
	return id, notFound(err)
}

// LogFile returns the path of a container's log, and whether it is still written.
func (i instances) LogFile(ctx context.Context, id string) (path string, open bool, err error) {
	path, open, err = i.n.LogFile(ctx, id)
	return path, open, notFound(err)
}

// notFound converts the agent's not-found errors into not-found errors of package server.
func notFound(err error) error {
	if errors.Is(err, local.ErrNotFound) {
		return fmt.Errorf("%w: %w", server.ErrNotFound, err)
	}
	return err
}

// applyGates applies the configured feature gates. Without a configured value, the server behaves
// as with the gate's default.
func applyGates(cfg *server.Config, gates map[string]bool) {
	on := func(gate string, def bool) bool {
		if v, ok := gates[gate]; ok {
			return v
		}
		return def
	}
	cfg.DisableWebSocketTranslation = !on("ExtendWebSocketsToKubelet", true)
	cfg.SplitLogStreams = on("PodLogsQuerySplitStreams", false)
	if !on("ContainerCheckpoint", true) {
		cfg.Checkpoint = nil
	}
}

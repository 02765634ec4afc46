package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/nodewright/nodewright/server/auth"
)

// Config holds what a Server needs. Node and Pods are required, and at least
// one listener or port. With a main listener TLS, Authenticator and Authorizer
// are required, too. Whatever else is nil has no endpoint.
type Config struct {
	Node string // the node's name, for authorization
	// Version is the release of Kubernetes that the node presents itself as, for
	// /statusz; none.
	Version string

	// A listener is given open, or by an address and a port of which 0 means
	// none. Listeners given are closed by Run. Main has all endpoints, by TLS and for
	// those who are authorized; ReadOnly the basic ones and Healthz /healthz, in the
	// clear and for everybody.
	Main, ReadOnly, Healthz         net.Listener
	Port, ReadOnlyPort, HealthzPort int
	Address                         string // of the main and the read-only port; 0.0.0.0
	HealthzAddress                  string // 127.0.0.1

	TLS *tls.Config // see [Certs]
	// The main port asks the first who sends a request, and the second whether they
	// may.
	Authenticator auth.Authenticator
	Authorizer    auth.Authorizer
	// Inner is for a Handler that somebody else serves, who lets in whom he knows: it
	// asks nobody who sends a request. No listener, TLS and Authenticator are required.
	Inner bool
	// For clients and proxies that have trouble with it; the kubelet has an environment
	// variable.
	DisableHTTP2 bool

	// The kubelet's switches, whose default is true with it for all but
	// EnableSystemLogQuery. Without it there are no exec, attach, portForward, run,
	// logs and profiles, whatever the others say.
	EnableDebuggingHandlers bool
	EnableProfilingHandler  bool
	EnableSystemLogHandler  bool
	EnableSystemLogQuery    bool // needs EnableSystemLogHandler
	EnableDebugFlagsHandler bool

	// The kubelet's feature gates.
	DisableWebSocketTranslation bool // ExtendWebSocketsToKubelet off
	SplitLogStreams             bool // PodLogsQuerySplitStreams on

	Pods       Pods
	Running    Running
	Instances  Instances // with Runtime: exec, attach, portForward, run
	Runtime    Runtime
	Checkpoint Checkpointer // with Instances and CheckpointDir
	Logs       Logs
	Stats      Stats
	Gatherers  map[string]prometheus.Gatherer // by path: /metrics, /metrics/cadvisor ...
	Configz    func() any                     // a KubeletConfiguration of v1beta1
	Flags      func() map[string]string       // the program's flags, at /flagz
	LogLevel   LogLevel
	Health     []Check // beside "ping"

	PodLogsDir    string // which logs may not leave; /var/log/pods
	SystemLogDir  string // /var/log
	CheckpointDir string // <root>/checkpoints

	Timeout  time.Duration // of a request that is no stream; 30s
	Grace    time.Duration // for requests that are under way when Run ends; 10s
	Heavy    int           // requests at a time to each endpoint that costs much; 8
	Streams  int           // exec, attach, portForward and logs at a time, of each three quarters at most; 1000
	Requests int           // all others at a time, of each port; 400. On the main one those count that were let in.
	// A host may have twice as many connections to a port as there may be requests
	// and streams, and eight times that are all that there may be.

	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported
}

// withDefaults returns a copy with the zero values replaced that have a default.
func (c Config) withDefaults() Config {
	for _, s := range []struct {
		field *string
		def   string
	}{
		{&c.Address, "0.0.0.0"}, {&c.HealthzAddress, "127.0.0.1"},
		{&c.PodLogsDir, "/var/log/pods"}, {&c.SystemLogDir, "/var/log"},
	} {
		if *s.field == "" {
			*s.field = s.def
		}
	}
	for _, n := range []struct {
		field *int
		def   int
	}{{&c.Heavy, 8}, {&c.Streams, 1000}, {&c.Requests, 400}} {
		if *n.field == 0 {
			*n.field = n.def
		}
	}
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	// Short enough for systemd, which kills what has not ended after 90 s.
	if c.Grace == 0 {
		c.Grace = 10 * time.Second
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

// hasMain reports whether there is a listener that asks clients who they are.
func (c Config) hasMain() bool { return c.Main != nil || c.Port != 0 }

// validate reports all mistakes at once, each with its field, value, and wanted values.
func (c Config) validate() error {
	var errs []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	// Authorizers decide about a named node.
	must(c.Node != "", "Config.Node is required")
	must(c.Pods != nil, "Config.Pods is required")
	must(c.Inner || c.hasMain() || c.ReadOnly != nil || c.ReadOnlyPort != 0 || c.Healthz != nil || c.HealthzPort != 0,
		"Config has no listener and no port; want at least one")
	// 0 is no port here, and not any free one.
	for _, p := range []struct {
		name string
		port int
	}{{"Port", c.Port}, {"ReadOnlyPort", c.ReadOnlyPort}, {"HealthzPort", c.HealthzPort}} {
		must(p.port >= 0 && p.port <= 65535, "Config.%s is %d; want 0 to 65535", p.name, p.port)
	}
	for _, a := range []struct{ name, addr string }{{"Address", c.Address}, {"HealthzAddress", c.HealthzAddress}} {
		must(net.ParseIP(a.addr) != nil, "Config.%s is %q; want an IP address", a.name, a.addr)
	}
	// Inner takes authentication away, which nobody wants on port 10250.
	must(!c.Inner || !c.hasMain(), "Config.Inner is set beside a main listener or port, which would be served without authentication")
	if c.hasMain() {
		must(c.TLS != nil, "Config.TLS is required for the main port")
		must(c.Authenticator != nil, "Config.Authenticator is required for the main port")
		must(c.Authorizer != nil, "Config.Authorizer is required for the main port")
	}
	must(!c.EnableSystemLogQuery || c.EnableSystemLogHandler, "Config.EnableSystemLogQuery needs EnableSystemLogHandler")
	// Whoever has a runtime still has to know which container a path means.
	must(c.Runtime == nil || c.Instances != nil, "Config.Runtime needs Instances")
	must(c.Checkpoint == nil || c.Instances != nil && c.CheckpointDir != "", "Config.Checkpoint needs Instances and CheckpointDir")
	for _, d := range []struct{ name, dir string }{
		{"PodLogsDir", c.PodLogsDir}, {"SystemLogDir", c.SystemLogDir}, {"CheckpointDir", c.CheckpointDir},
	} {
		must(d.dir == "" || filepath.IsAbs(d.dir), "Config.%s is %q; want an absolute path", d.name, d.dir)
	}
	// A pattern of ServeMux in a path, or a path of several elements, would shadow
	// other endpoints.
	for path, g := range c.Gatherers {
		ok := path == "/metrics" || strings.HasPrefix(path, "/metrics/") && !strings.ContainsAny(path[len("/metrics/"):], "/{}")
		must(ok && g != nil, "Config.Gatherers has %q; want /metrics or /metrics/<name> and a Gatherer", path)
	}
	// The names become paths below /healthz/.
	for i, h := range c.Health {
		must(h.Name != "" && !strings.ContainsAny(h.Name, "/{} ") && h.Check != nil, "Config.Health[%d] is named %q; want a word and a function", i, h.Name)
	}
	// Negative values would end every request at once, or let none in.
	must(c.Timeout > 0 && c.Grace > 0, "Config.Timeout is %v and Grace %v; want positive durations", c.Timeout, c.Grace)
	must(c.Heavy > 0 && c.Streams > 0 && c.Requests > 0, "Config.Heavy is %d, Streams %d, Requests %d; want positive numbers", c.Heavy, c.Streams, c.Requests)
	return errors.Join(errs...)
}

package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/nodewright/nodewright/server/auth"
)

// Config configures a [Server]. Node, Pods, and at least one listener or port are required. A
// main listener also requires TLS, Authenticator and Authorizer. Any other nil field disables its
// endpoints.
type Config struct {
	Node string // name of the node, for authorization
	// Version is the Kubernetes version of the node, which /statusz shows. If it is "", /statusz
	// shows no version.
	Version string

	// The server has up to three ports. The main port has all endpoints, with TLS and
	// authorization. The read-only port has the basic endpoints, and the healthz port only
	// /healthz; both are without TLS and authorization. For each port, set either an open
	// listener, which Run closes, or an address and a port number. If neither is set, the port is
	// disabled.
	Main, ReadOnly, Healthz         net.Listener
	Port, ReadOnlyPort, HealthzPort int
	Address                         string // of the main and the read-only port; the default is 0.0.0.0
	HealthzAddress                  string // the default is 127.0.0.1

	TLS *tls.Config // see [Certs]
	// Authenticator determines the user of a request on the main port. Authorizer decides whether
	// the user may make it.
	Authenticator auth.Authenticator
	Authorizer    auth.Authorizer
	// Inner turns off authentication and authorization in [Server.Handler]. It is for a handler
	// behind another server that authenticates requests. Listeners, TLS and Authenticator are
	// then not required.
	Inner bool
	// DisableHTTP2 turns off HTTP/2, for clients and proxies that have problems with it. The
	// kubelet has an environment variable for this.
	DisableHTTP2 bool

	// EnableDebuggingHandlers and the following fields are the kubelet's fields with these names.
	// In the kubelet all but EnableSystemLogQuery are true by default. Without
	// EnableDebuggingHandlers the endpoints exec, attach, portForward, run, logs and profiles are
	// disabled, even if the other fields are set.
	EnableDebuggingHandlers bool
	EnableProfilingHandler  bool
	EnableSystemLogHandler  bool
	EnableSystemLogQuery    bool // requires EnableSystemLogHandler
	EnableDebugFlagsHandler bool

	// These fields correspond to feature gates of the kubelet. A zero value is the
	// default of the gate.
	DisableWebSocketTranslation bool // ExtendWebSocketsToKubelet=false
	SplitLogStreams             bool // PodLogsQuerySplitStreams=true

	Pods       Pods
	Running    Running
	Instances  Instances // with Runtime: exec, attach, portForward, run
	Runtime    Runtime
	Checkpoint Checkpointer // with Instances and CheckpointDir
	Logs       Logs
	Stats      Stats
	Gatherers  map[string]prometheus.Gatherer // by path: /metrics, /metrics/cadvisor ...
	Configz    func() any                     // a KubeletConfiguration of v1beta1
	Flags      func() map[string]string       // the program's flags, for /flagz
	LogLevel   LogLevel
	Health     []Check // checks in addition to "ping"

	PodLogsDir    string // directory that logs must be in; /var/log/pods
	SystemLogDir  string // /var/log
	CheckpointDir string // <root>/checkpoints

	Streams  int // limit of exec, attach, portForward and logs, of each at most three quarters; the default is 1000
	Requests int // limit of concurrent other requests, per port; the default is 400. On the main port only authorized ones count.
	// One user may have at most seven eighths of each of these limits.

	// One client host may have twice as many connections to a port as the sum of Requests and
	// Streams. All hosts together may have eight times as many.

	Log     *zap.Logger           // if nil, nothing is logged
	Metrics prometheus.Registerer // if nil, metrics are not exported
}

// withDefaults returns a copy with defaults in place of zero values.
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
	}{{&c.Streams, 1000}, {&c.Requests, 400}} {
		if *n.field == 0 {
			*n.field = n.def
		}
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

// hasMain reports whether the main server is configured.
func (c Config) hasMain() bool { return c.Main != nil || c.Port != 0 }

// validate returns an error for each invalid field, with its value and the allowed
// values.
func (c Config) validate() error {
	var errs []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	// Authorizers decide about a node by its name.
	must(c.Node != "", "Config.Node is required")
	must(c.Pods != nil, "Config.Pods is required")
	must(c.Inner || c.hasMain() || c.ReadOnly != nil || c.ReadOnlyPort != 0 || c.Healthz != nil || c.HealthzPort != 0,
		"Config has no listener and no port; want at least one")
	// 0 means no port, not any free port.
	for _, p := range []struct {
		name string
		port int
	}{{"Port", c.Port}, {"ReadOnlyPort", c.ReadOnlyPort}, {"HealthzPort", c.HealthzPort}} {
		must(p.port >= 0 && p.port <= 65535, "Config.%s is %d; want 0 to 65535", p.name, p.port)
	}
	for _, a := range []struct{ name, addr string }{{"Address", c.Address}, {"HealthzAddress", c.HealthzAddress}} {
		must(net.ParseIP(a.addr) != nil, "Config.%s is %q; want an IP address", a.name, a.addr)
	}
	// Inner turns off authentication, which must not happen on port 10250.
	must(!c.Inner || !c.hasMain(), "Config.Inner is set beside a main listener or port, which would be served without authentication")
	if c.hasMain() {
		must(c.TLS != nil, "Config.TLS is required for the main port")
		must(c.Authenticator != nil, "Config.Authenticator is required for the main port")
		must(c.Authorizer != nil, "Config.Authorizer is required for the main port")
	}
	must(!c.EnableSystemLogQuery || c.EnableSystemLogHandler, "Config.EnableSystemLogQuery needs EnableSystemLogHandler")
	// With a runtime, the containers named by paths have to be found.
	must(c.Runtime == nil || c.Instances != nil, "Config.Runtime needs Instances")
	must(c.Checkpoint == nil || c.Instances != nil && c.CheckpointDir != "", "Config.Checkpoint needs Instances and CheckpointDir")
	for _, d := range []struct{ name, dir string }{
		{"PodLogsDir", c.PodLogsDir}, {"SystemLogDir", c.SystemLogDir}, {"CheckpointDir", c.CheckpointDir},
	} {
		must(d.dir == "" || filepath.IsAbs(d.dir), "Config.%s is %q; want an absolute path", d.name, d.dir)
	}
	// A path that is a ServeMux pattern, or has several elements, would hide other endpoints.
	for path, g := range c.Gatherers {
		ok := path == "/metrics" || strings.HasPrefix(path, "/metrics/") && !strings.ContainsAny(path[len("/metrics/"):], "/{}")
		must(ok && g != nil, "Config.Gatherers has %q; want /metrics or /metrics/<name> and a Gatherer", path)
	}
	// The names become paths below /healthz/.
	for i, h := range c.Health {
		must(h.Name != "" && !strings.ContainsAny(h.Name, "/{} ") && h.Check != nil, "Config.Health[%d] is named %q; want a word and a function", i, h.Name)
	}
	// With a negative value, all requests would be rejected.
	must(c.Streams > 0 && c.Requests > 0, "Config.Streams is %d, Requests %d; want positive numbers", c.Streams, c.Requests)
	return errors.Join(errs...)
}

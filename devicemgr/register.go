package devicemgr

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/internal/safefile"
)

// The registration service of the device plugin API, and the checks of its callers.
// Any program that can write to the directory can register: the number of calls and
// connections and the size of texts are limited.

const (
	// socketName is the socket in Config.SocketDir at which plugins register (KubeletSocket of
	// the device plugin API).
	socketName = "kubelet.sock"
	// maxSocketPath is the longest path of a unix socket (unix(7)).
	maxSocketPath = 107
	// maxCalls limits concurrent registrations.
	maxCalls = 64
	// maxConns limits connections to the registration socket.
	maxConns = 256
	// maxVersions limits the versions of a plugin in an error.
	maxVersions = 8
	// otherResource stands for resources in metrics beyond maxResources.
	otherResource = "<other>"
)

// Healthy returns why plugins cannot register, or nil if they can. The kubelet has
// the health check "device-plugin" for it. Registered plugins are not affected.
func (m *Manager) Healthy() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.serving
}

// serve runs the registration service until ctx ends. If the socket directory cannot be used, it
// tries again with back-off; the kubelet needs a restart.
func (m *Manager) serve(ctx context.Context) {
	pause := retry.Backoff{First: firstRetry, Max: lastRetry}
	for ctx.Err() == nil {
		started := time.Now()
		err := m.serveOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		m.setServing(err)
		m.cfg.Log.Error("failed to serve registrations of device plugins", zap.String("dir", m.cfg.SocketDir), zap.Error(err))
		// A service that ran for long starts with short pauses again.
		pause.Recovered(time.Since(started))
		pause.Wait(ctx)
	}
}

// setServing notes why plugins cannot register now; nil means that they can.
func (m *Manager) setServing(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.serving = err
}

// serveOnce listens and serves until ctx ends or the listener fails. The error is
// never nil.
func (m *Manager) serveOnce(ctx context.Context) error {
	l, err := m.listen()
	if err != nil {
		return err
	}
	s := grpc.NewServer(grpc.MaxConcurrentStreams(maxCalls), grpc.MaxRecvMsgSize(64<<10), grpc.MaxHeaderListSize(maxHeader),
		grpc.ConnectionTimeout(m.cfg.Timeout), grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: time.Minute}))
	pluginapi.RegisterRegistrationServer(s, &registry{m: m, calls: make(chan struct{}, maxCalls)})
	// A plugin's request has a few names: 64 KiB are plenty. Idle connections are
	// closed since plugins need none after registering.
	m.setServing(nil)
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	if err := s.Serve(&fewConns{Listener: l, places: make(chan struct{}, maxConns)}); err != nil {
		return err
	}
	return errors.New("the service ended")
}

// maxSockets limits how many names in the socket directory are checked.
const maxSockets = 10_000

// listen prepares the directory: it removes the sockets in it, from which plugins
// detect that the agent has started. Other files are kept, such as a kubelet's
// checkpoint. A socket that cannot be removed is only logged, as its plugin may
// still register by itself.
func (m *Manager) listen() (net.Listener, error) {
	if err := os.MkdirAll(m.cfg.SocketDir, 0o750); err != nil {
		return nil, err
	}
	dir, err := safefile.OpenDir(m.cfg.SocketDir, ".")
	if err != nil {
		return nil, err
	}
	entries, err := dir.Entries(maxSockets) // plugins write to it
	if err = errors.Join(err, dir.Close()); err != nil && !errors.Is(err, safefile.ErrTooMany) {
		return nil, err
	}
	// With more than maxSockets names only the first ones are checked: the plugins
	// of the others do not detect the start, but all can register.
	for _, e := range entries {
		if e.Type()&fs.ModeSocket == 0 {
			continue
		}
		if err := os.Remove(filepath.Join(m.cfg.SocketDir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			m.cfg.Log.Warn("failed to remove old socket", zap.Error(err))
		}
	}
	// The sockets are removed before the listener exists: a plugin that detects the
	// removal retries until it can register.
	return net.Listen("unix", filepath.Join(m.cfg.SocketDir, socketName))
}

// registry is the service that plugins register at. It is used by one server; gRPC
// calls Register from a goroutine for each request.
type registry struct {
	pluginapi.UnimplementedRegistrationServer
	m *Manager
	// Bounded over all connections: the server's own limit counts per connection.
	calls chan struct{} // one for each call
}

// Register connects to a plugin. It returns after the plugin has answered its first
// call: plugins serve before they register. It blocks for Config.Timeout at most,
// and on the store. The plugin has to handle an error.
func (r *registry) Register(ctx context.Context, req *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	select {
	case r.calls <- struct{}{}:
		defer func() { <-r.calls }()
	default:
		return nil, status.Errorf(codes.ResourceExhausted, "%d registrations are under way, the most there may be", maxCalls)
	}
	err := r.register(ctx, req)
	if err != nil {
		r.m.cfg.Log.Warn("refused registration of device plugin", zap.String("resource", shorten(req.GetResourceName())),
			zap.String("endpoint", shorten(req.GetEndpoint())), zap.Error(err))
	}
	return &pluginapi.Empty{}, err
}

// register checks a request and connects. Like the kubelet it ignores the options
// in the request and asks the plugin for them.
func (r *registry) register(ctx context.Context, req *pluginapi.RegisterRequest) error {
	if err := checkResource(req.GetResourceName()); err != nil {
		return err
	}
	// Counted before the version is checked, as the kubelet does.
	r.m.countRegistration(req.GetResourceName())
	if err := checkVersions([]string{req.GetVersion()}); err != nil {
		return err
	}
	name := req.GetEndpoint()
	// An endpoint is a file's name in the API. A path would let a plugin have the
	// agent connect to any socket of the node.
	if name == "" || name != filepath.Base(name) || name == "." || name == ".." || name == socketName {
		return fmt.Errorf("endpoint %.128q: want the name of the plugin's socket in %s", name, r.m.cfg.SocketDir)
	}
	return r.m.connect(ctx, req.GetResourceName(), filepath.Join(r.m.cfg.SocketDir, name))
}

// countRegistration counts an attempt, under the names of as many resources as are
// kept. A program that registers made-up names must not fill the registry of
// metrics.
func (m *Manager) countRegistration(name string) {
	m.mu.Lock()
	if !m.named(name) {
		name = otherResource
	}
	m.mu.Unlock()
	m.met.registrations.WithLabelValues(name).Inc()
}

// named reports whether a resource may have a series in metrics. Manager.mu is
// held. Only the first maxResources names may, since series of counters are not
// removed.
func (m *Manager) named(name string) bool {
	if !m.counted[name] && len(m.counted) < maxResources {
		m.counted[name] = true
	}
	return m.counted[name]
}

// fewConns is a listener that closes connections beyond its limit. gRPC has no such
// limit, and each connection costs goroutines and buffers.
type fewConns struct {
	net.Listener
	places chan struct{}
}

// Accept waits for a connection within the limit, until the listener is closed.
func (l *fewConns) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		// The place is given back once, though gRPC may close a connection more
		// than once.
		case l.places <- struct{}{}:
			return &placed{Conn: c, leave: sync.OnceFunc(func() { <-l.places })}, nil
		default:
			_ = c.Close()
		}
	}
}

// placed is a connection that has a place.
type placed struct {
	net.Conn
	leave func()
}

// Close closes the connection and frees its slot.
func (c *placed) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// checkVersions returns an error if none of the versions is the one of the API that
// this package speaks.
func checkVersions(versions []string) error {
	if !slices.Contains(versions, pluginapi.Version) {
		return fmt.Errorf("API version %.64q is not supported; want %s", versions[:min(len(versions), maxVersions)], pluginapi.Version)
	}
	return nil
}

// connect connects to the plugin at a socket and makes the first call. Links are refused, since
// they may lead out of the directory.
func (m *Manager) connect(ctx context.Context, resource, socket string) error {
	if err := checkResource(resource); err != nil {
		return err
	}
	info, err := os.Lstat(socket)
	if err != nil {
		return fmt.Errorf("endpoint: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("endpoint %s is %s; want a socket, and no link to one", socket, info.Mode().Type())
	}
	// dial does not wait for a connection; offer closes p if it fails.
	p, err := dial(socket, m.cfg.Log)
	if err != nil {
		return err
	}
	return m.offer(ctx, resource, socket, p)
}

// Registrar adds plugins that another package finds, such as package pluginmgr for
// the type DevicePlugin in its directory. It matches that package's handler
// interface without importing it.
type Registrar struct{ m *Manager }

// Registrar returns a Registrar for this manager.
func (m *Manager) Registrar() Registrar { return Registrar{m} }

// Validate returns an error if a plugin would be refused. It does not check the
// endpoint, and does not block.
func (r Registrar) Validate(name, endpoint string, versions []string) error {
	return errors.Join(checkResource(name), checkVersions(versions))
}

// Register adds the plugin that serves at a socket. endpoint is the absolute path of
// the socket, in any directory. (At the registration socket it is a name in the
// directory of that socket.)
func (r Registrar) Register(ctx context.Context, name, endpoint string, versions []string) error {
	if err := r.Validate(name, endpoint, versions); err != nil {
		return err
	}
	r.m.countRegistration(name)
	return r.m.connect(ctx, name, endpoint)
}

// Deregister removes a plugin if it still serves its resource. The endpoint
// distinguishes it from a plugin that has replaced it.
func (r Registrar) Deregister(name, endpoint string) { r.m.withdraw(name, endpoint) }

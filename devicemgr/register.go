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

	"github.com/nodewright/nodewright/internal/callerror"
	"github.com/nodewright/nodewright/internal/pluginconn"
	"github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/internal/safefile"
)

// The registration service of the device plugin API. Any program that can write to the directory
// can register, so callers are checked, and the number of calls and connections and the size of
// texts are limited.

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
	// maxVersions limits the versions of a plugin that an error lists.
	maxVersions = 8
	// otherResource is the label in metrics for resources beyond maxResources.
	otherResource = "<other>"
)

// Healthy returns the reason why plugins cannot register, or nil if they can. It corresponds to
// the kubelet's health check "device-plugin". Registered plugins are not affected.
func (m *Manager) Healthy() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.serving
}

// serve runs the registration service until ctx ends. If the socket directory cannot be used, it
// tries again with back-off; a kubelet would need a restart.
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
		// After a long time of service, pauses are short again.
		pause.Recovered(time.Since(started))
		pause.Wait(ctx)
	}
}

// setServing records the reason why plugins cannot register now. The reason is nil if they can.
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
	s := grpc.NewServer(grpc.MaxConcurrentStreams(maxCalls), grpc.MaxRecvMsgSize(64<<10), grpc.MaxHeaderListSize(pluginconn.MaxHeader),
		grpc.ConnectionTimeout(m.cfg.Timeout), grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: time.Minute}))
	pluginapi.RegisterRegistrationServer(s, &registry{m: m, calls: make(chan struct{}, maxCalls)})
	// 64 KiB are enough for a request, which has a few names. Idle connections are closed, since
	// plugins need none after registering.
	m.setServing(nil)
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	if err := s.Serve(&fewConns{Listener: l, places: make(chan struct{}, maxConns)}); err != nil {
		return err
	}
	return errors.New("registration service ended")
}

// maxSockets limits how many entries of the socket directory are checked.
const maxSockets = 10_000

// listen prepares the directory: it removes the sockets in it, by which plugins notice that the
// agent has started. Other files are kept, such as a kubelet's checkpoint. A socket that cannot
// be removed is only logged, since its plugin may register anyway.
func (m *Manager) listen() (net.Listener, error) {
	if err := os.MkdirAll(m.cfg.SocketDir, 0o750); err != nil {
		return nil, err
	}
	dir, err := safefile.OpenDir(m.cfg.SocketDir, ".")
	if err != nil {
		return nil, err
	}
	entries, err := dir.Entries(maxSockets) // plugins can write to it
	if err = errors.Join(err, dir.Close()); err != nil && !errors.Is(err, safefile.ErrTooMany) {
		return nil, err
	}
	// Beyond maxSockets, entries are not checked: their plugins do not notice the start, but they
	// can register.
	for _, e := range entries {
		if e.Type()&fs.ModeSocket == 0 {
			continue
		}
		if err := os.Remove(filepath.Join(m.cfg.SocketDir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			m.cfg.Log.Warn("failed to remove old socket", zap.Error(err))
		}
	}
	// The sockets are removed before the listener exists. A plugin that notices the removal
	// retries until it can register.
	return net.Listen("unix", filepath.Join(m.cfg.SocketDir, socketName))
}

// registry is the service at which plugins register. It belongs to one server. gRPC calls
// Register on a goroutine for each request.
type registry struct {
	pluginapi.UnimplementedRegistrationServer
	m *Manager
	// calls limits the calls of all connections together; the server's own limit is per
	// connection.
	calls chan struct{} // has an element for each running call
}

// Register connects to a plugin. It returns after the plugin has answered its first call, since
// plugins serve before they register. It blocks at most for Config.Timeout, and on the store. The
// plugin has to handle an error.
func (r *registry) Register(ctx context.Context, req *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	select {
	case r.calls <- struct{}{}:
		defer func() { <-r.calls }()
	default:
		return nil, status.Errorf(codes.ResourceExhausted, "%d registrations are under way, the most there may be", maxCalls)
	}
	err := r.register(ctx, req)
	if err != nil {
		r.m.cfg.Log.Warn("refused registration of device plugin", zap.String("resource", callerror.Cut(req.GetResourceName(), pluginconn.MaxText)),
			zap.String("endpoint", callerror.Cut(req.GetEndpoint(), pluginconn.MaxText)), zap.Error(err))
	}
	return &pluginapi.Empty{}, err
}

// register checks a request and connects. Like the kubelet, it ignores the options in the request
// and asks the plugin for them.
func (r *registry) register(ctx context.Context, req *pluginapi.RegisterRequest) error {
	if err := CheckResource(req.GetResourceName()); err != nil {
		return err
	}
	// Counted before the version is checked, as in the kubelet.
	r.m.countRegistration(req.GetResourceName())
	if err := checkVersions([]string{req.GetVersion()}); err != nil {
		return err
	}
	name := req.GetEndpoint()
	// In the API an endpoint is a file name. With a path, a plugin could make the agent connect
	// to any socket of the node.
	if name == "" || name != filepath.Base(name) || name == "." || name == ".." || name == socketName {
		return fmt.Errorf("endpoint %.128q: want the name of the plugin's socket in %s", name, r.m.cfg.SocketDir)
	}
	return r.m.connect(ctx, req.GetResourceName(), filepath.Join(r.m.cfg.SocketDir, name))
}

// countRegistration counts an attempt. The number of resource names in the metric is limited, so
// that a program that registers invented names cannot fill the registry.
func (m *Manager) countRegistration(name string) {
	m.mu.Lock()
	if !m.named(name) {
		name = otherResource
	}
	m.mu.Unlock()
	m.met.registrations.WithLabelValues(name).Inc()
}

// named reports whether a resource may have its own series in metrics. Only the first
// maxResources names may, since series are never removed. The caller holds Manager.mu.
func (m *Manager) named(name string) bool {
	if !m.counted[name] && len(m.counted) < maxResources {
		m.counted[name] = true
	}
	return m.counted[name]
}

// fewConns is a listener that closes connections above its limit. gRPC has no such limit, and
// each connection costs goroutines and buffers.
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
		// The slot is released once, although gRPC may close a connection twice.
		case l.places <- struct{}{}:
			return &placed{Conn: c, leave: sync.OnceFunc(func() { <-l.places })}, nil
		default:
			_ = c.Close()
		}
	}
}

// placed is a connection that occupies a slot.
type placed struct {
	net.Conn
	leave func()
}

// Close closes the connection and frees its slot.
func (c *placed) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// checkVersions returns an error if none of the versions is the supported one.
func checkVersions(versions []string) error {
	if !slices.Contains(versions, pluginapi.Version) {
		return fmt.Errorf("API version %.64q is not supported; want %s", versions[:min(len(versions), maxVersions)], pluginapi.Version)
	}
	return nil
}

// connect connects to the plugin at a socket and makes the first call. It rejects links, since
// they may lead out of the directory.
func (m *Manager) connect(ctx context.Context, resource, socket string) error {
	if err := CheckResource(resource); err != nil {
		return err
	}
	info, err := os.Lstat(socket)
	if err != nil {
		return fmt.Errorf("endpoint: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("endpoint %s is %s; want a socket, and no link to one", socket, info.Mode().Type())
	}
	// dial does not connect yet. If offer fails, it closes p.
	p, err := dial(socket, m.cfg.Log)
	if err != nil {
		return err
	}
	return m.offer(ctx, resource, socket, p)
}

// Registrar adds plugins that another package discovers, such as package pluginmgr with its type
// DevicePlugin. It implements that package's handler interface without importing the package.
type Registrar struct{ m *Manager }

// Registrar returns a Registrar for this manager.
func (m *Manager) Registrar() Registrar { return Registrar{m} }

// Validate returns an error if a plugin would be rejected. It does not look at the socket of the
// plugin, and does not block.
func (r Registrar) Validate(name, endpoint string, versions []string) error {
	return errors.Join(CheckResource(name), checkVersions(versions))
}

// Register adds the plugin that serves at a socket. endpoint is the absolute path of the socket,
// in any directory. (At the registration socket, an endpoint is a name in that socket's
// directory.)
func (r Registrar) Register(ctx context.Context, name, endpoint string, versions []string) error {
	if err := r.Validate(name, endpoint, versions); err != nil {
		return err
	}
	r.m.countRegistration(name)
	return r.m.connect(ctx, name, endpoint)
}

// Deregister removes a plugin if it still serves its resource. The endpoint distinguishes it from
// a plugin that has replaced it.
func (r Registrar) Deregister(name, endpoint string) { r.m.withdraw(name, endpoint) }

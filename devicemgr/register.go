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
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	// socketName is where plugins register, in Config.SocketDir
	// (KubeletSocket of the device plugin API).
	socketName = "kubelet.sock"
	// maxSocketPath is the longest path of a unix socket (unix(7)).
	maxSocketPath = 107
	// maxCalls bounds the registrations that are under way at a time.
	maxCalls = 64
)

// Healthy tells why plugins cannot register now; nil if they can.
func (m *Manager) Healthy() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.serving
}

// serve has the registration service up until ctx ends.
func (m *Manager) serve(ctx context.Context) {
	pause := firstRetry
	for ctx.Err() == nil {
		started := time.Now()
		err := m.serveOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		m.setServing(err)
		m.cfg.Log.Error("device plugins cannot register", zap.String("dir", m.cfg.SocketDir), zap.Error(err))
		if time.Since(started) > lastRetry {
			pause = firstRetry
		}
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
		case <-t.C:
		}
		pause = min(2*pause, lastRetry)
	}
}

func (m *Manager) setServing(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.serving = err
}

func (m *Manager) serveOnce(ctx context.Context) error {
	l, err := m.listen()
	if err != nil {
		return err
	}
	s := grpc.NewServer(grpc.MaxConcurrentStreams(maxCalls), grpc.MaxRecvMsgSize(1<<20), grpc.ConnectionTimeout(m.cfg.Timeout))
	pluginapi.RegisterRegistrationServer(s, &registry{m: m})
	m.setServing(nil)
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	if err := s.Serve(l); err != nil {
		return err
	}
	return errors.New("the service ended")
}

// listen makes the directory ready: sockets in it are removed, which tells the
// plugins whose they are that the agent has started.
func (m *Manager) listen() (net.Listener, error) {
	if err := os.MkdirAll(m.cfg.SocketDir, 0o750); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(m.cfg.SocketDir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Type()&fs.ModeSocket == 0 {
			continue
		}
		if err := os.Remove(filepath.Join(m.cfg.SocketDir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			m.cfg.Log.Warn("an old socket stays", zap.Error(err))
		}
	}
	return net.Listen("unix", filepath.Join(m.cfg.SocketDir, socketName))
}

// registry is the service that plugins register at.
type registry struct {
	pluginapi.UnimplementedRegistrationServer
	m *Manager
}

// Register connects to a plugin. It answers when the plugin has answered its
// first call: plugins serve before they register.
func (r *registry) Register(ctx context.Context, req *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	err := r.register(ctx, req)
	if err != nil {
		r.m.cfg.Log.Warn("device plugin not registered", zap.String("resource", req.GetResourceName()),
			zap.String("endpoint", req.GetEndpoint()), zap.Error(err))
	}
	return &pluginapi.Empty{}, err
}

func (r *registry) register(ctx context.Context, req *pluginapi.RegisterRequest) error {
	if err := checkResource(req.GetResourceName()); err != nil {
		return err
	}
	r.m.met.registrations.WithLabelValues(req.GetResourceName()).Inc()
	if err := checkVersions([]string{req.GetVersion()}); err != nil {
		return err
	}
	name := req.GetEndpoint()
	if name == "" || name != filepath.Base(name) || name == "." || name == ".." || name == socketName {
		return fmt.Errorf("endpoint %q: want the name of the plugin's socket in %s", name, r.m.cfg.SocketDir)
	}
	return r.m.connect(ctx, req.GetResourceName(), filepath.Join(r.m.cfg.SocketDir, name))
}

func checkVersions(versions []string) error {
	if !slices.Contains(versions, pluginapi.Version) {
		return fmt.Errorf("API version %q is not supported; want %s", versions, pluginapi.Version)
	}
	return nil
}

// connect takes the plugin behind a socket.
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
	p, err := dial(socket, m.cfg.Log)
	if err != nil {
		return err
	}
	return m.offer(ctx, resource, socket, p)
}

// Registrar takes plugins that another registers: as package pluginmgr does,
// for the type DevicePlugin, with those in the directory it watches.
type Registrar struct{ m *Manager }

// Registrar returns the manager's.
func (m *Manager) Registrar() Registrar { return Registrar{m} }

// Validate tells whether a plugin could be taken.
func (r Registrar) Validate(name, endpoint string, versions []string) error {
	return errors.Join(checkResource(name), checkVersions(versions))
}

// Register takes the plugin behind a socket, an absolute path.
func (r Registrar) Register(ctx context.Context, name, endpoint string, versions []string) error {
	if err := r.Validate(name, endpoint, versions); err != nil {
		return err
	}
	r.m.met.registrations.WithLabelValues(name).Inc()
	return r.m.connect(ctx, name, endpoint)
}

// Deregister ends the use of a plugin, if it is still that of its resource.
func (r Registrar) Deregister(name, endpoint string) { r.m.withdraw(name, endpoint) }

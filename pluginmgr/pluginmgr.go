package pluginmgr

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/wake"
)

// Types of plugins, as plugins report them.
const (
	DevicePlugin = "DevicePlugin"
	CSIPlugin    = "CSIPlugin"
	DRAPlugin    = "DRAPlugin"
)

// Defaults and limits.
const (
	// rescanInterval is the interval at which the directory is scanned even if the kernel reports no
	// change.
	rescanInterval = time.Minute
	// infoTimeout is longer than the kubelet's one second, which is too short for a driver that
	// has just started on a busy node.
	infoTimeout = 10 * time.Second
	// notifyTimeout limits a call of Plugin.Notify, with the kubelet's value.
	notifyTimeout = 5 * time.Second
	// handlerTimeout limits a call of a handler. Registering a CSI driver includes a call with a
	// deadline of 2 minutes.
	handlerTimeout = 3 * time.Minute
	// firstRetry is the pause after the first failed handshake, and lastRetry is the longest
	// pause. Both are the kubelet's values.
	firstRetry = 500 * time.Millisecond
	lastRetry  = 2*time.Minute + 2*time.Second
)

// Handler uses the plugins of one type. Calls for different sockets may overlap.
type Handler interface {
	// Validate returns an error if a plugin cannot be used, for example because of its
	// versions.
	Validate(name, endpoint string, versions []string) error
	// Register starts the use of a plugin. ctx has a deadline.
	Register(ctx context.Context, name, endpoint string, versions []string) error
	// Deregister ends the use of a plugin. It is called once for each plugin whose
	// Register succeeded, and must not wait for the plugin.
	Deregister(name, endpoint string)
}

// Plugin calls one plugin through its registration socket. Calls end when their ctx ends.
type Plugin interface {
	Info(ctx context.Context) (Info, error)
	// Notify informs the plugin whether it is registered. If it is not, reason is the error;
	// otherwise reason is "".
	Notify(ctx context.Context, registered bool, reason string) error
	Close() error
}

// Info is a plugin's description of itself.
type Info struct {
	Type, Name string
	// Endpoint is the socket at which the plugin serves. If it is "", the plugin serves at its
	// registration socket.
	Endpoint string
	Versions []string
}

// Config holds what a Manager needs. Dir is required; the zero value of every
// other field means the default named beside it.
type Config struct {
	// Dir is the directory in which plugins create their sockets, subdirectories
	// included; the kubelet's is /var/lib/kubelet/plugins_registry. It is created if it
	// is missing. Nothing in it is removed.
	Dir string
	// Handlers has the handlers for each type of plugin. The first handler that accepts a plugin
	// gets it.
	Handlers map[string][]Handler
	// Connect connects to a plugin's registration socket. If it is nil, the Manager connects by
	// gRPC.
	Connect func(ctx context.Context, socket string) (Plugin, error)

	Log     *zap.Logger           // if nil, nothing is logged
	Metrics prometheus.Registerer // if nil, metrics are not exported

	look func(dir string) (map[string]identity, error) // replaced in tests
	wake <-chan struct{}
}

// Manager registers the plugins whose sockets are in a directory.
type Manager struct {
	cfg Config
	met *metrics

	mu      sync.Mutex
	sockets map[string]*socket
}

// New checks cfg and returns a Manager. Call Run to start it.
func New(cfg Config) (*Manager, error) {
	var errs []error
	if !filepath.IsAbs(cfg.Dir) {
		errs = append(errs, fmt.Errorf("Config.Dir is %q; want an absolute path", cfg.Dir))
	}
	for _, typ := range slices.Sorted(maps.Keys(cfg.Handlers)) {
		if len(cfg.Handlers[typ]) == 0 || slices.Contains(cfg.Handlers[typ], nil) {
			errs = append(errs, fmt.Errorf("Config.Handlers[%q] is %v; want at least one handler, and none that is nil", typ, cfg.Handlers[typ]))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("pluginmgr: %w", err)
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	if cfg.Connect == nil {
		cfg.Connect = connect
	}
	if cfg.look == nil {
		cfg.look = look
	}
	met, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("pluginmgr: %w", err)
	}
	return &Manager{cfg: cfg, met: met, sockets: map[string]*socket{}}, nil
}

// Run registers plugins until ctx ends, and returns nil when all calls to plugins and handlers
// have returned. At its end, plugins remain registered with their handlers. It may be called
// once.
func (m *Manager) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wake, rescan := m.cfg.wake, rescanInterval
	if wake == nil {
		w, err := watch(m.cfg.Dir, m.cfg.Log)
		if err != nil {
			m.cfg.Log.Warn("failed to watch plugin directory; reading it each second instead", zap.Error(err))
			rescan = time.Second
		} else {
			defer w.close()
			wake = w.wake
		}
	}
	tick := time.NewTicker(rescan)
	defer tick.Stop()
	troubled := ""
	for {
		found, err := m.cfg.look(m.cfg.Dir)
		if err == nil || errors.Is(err, errTooMuch) {
			m.update(ctx, &wg, found, err != nil)
		}
		if now := fmt.Sprint(err); err != nil && now != troubled {
			m.cfg.Log.Error("failed to read the directory of plugins", zap.String("dir", m.cfg.Dir), zap.Error(err))
			troubled = now
		} else if err == nil {
			troubled = ""
		}
		select {
		case <-ctx.Done():
			wg.Wait()
			return nil
		case <-wake:
		case <-tick.C:
		}
	}
}

// update starts the registration of new sockets, and the deregistration of missing ones.
// partial means that the scan reached a limit: a known socket that is not in found counts
// as missing only if its file does not exist.
func (m *Manager) update(ctx context.Context, wg *sync.WaitGroup, found map[string]identity, partial bool) {
	if partial {
		m.addKnown(found)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for path, s := range m.sockets {
		if _, exists := found[path]; !exists {
			s.want(nil)
		}
	}
	for path, id := range found {
		s := m.sockets[path]
		switch {
		case s != nil:
			s.want(&id)
		case len(m.sockets) < maxSockets:
			s = &socket{m: m, path: path, changed: wake.New(), desired: &id}
			m.sockets[path] = s
			m.met.total.WithLabelValues(path, "desired").Set(1)
			wg.Go(func() { s.run(ctx) })
		}
	}
}

// addKnown adds known sockets that still exist to found.
func (m *Manager) addKnown(found map[string]identity) {
	m.mu.Lock()
	paths := slices.Collect(maps.Keys(m.sockets))
	m.mu.Unlock()
	for _, path := range paths {
		if _, exists := found[path]; exists {
			continue
		}
		if id, err := identify(path); err == nil {
			found[path] = id
		}
	}
}

// State says which plugin a socket belongs to, and whether it is registered.
type State struct {
	Socket string
	Info   Info
	// Registered reports that a handler uses the plugin.
	Registered bool
	// Trouble is the error of the last attempt to register the plugin. It is "" if the attempt
	// succeeded. Retry is the time of the next attempt.
	Trouble string
	Retry   time.Time
}

// Plugins returns the state of each socket, sorted by path.
func (m *Manager) Plugins() []State {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []State
	for _, path := range slices.Sorted(maps.Keys(m.sockets)) {
		out = append(out, m.sockets[path].state())
	}
	return out
}

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
)

// Types of plugins, as they name them.
const (
	DevicePlugin = "DevicePlugin"
	CSIPlugin    = "CSIPlugin"
	DRAPlugin    = "DRAPlugin"
)

// Defaults and limits.
const (
	defaultRescan = time.Minute
	// infoTimeout is longer than the kubelet's second, which is too short for
	// a driver on a busy node that has just started.
	infoTimeout = 10 * time.Second
	// notifyTimeout is the kubelet's.
	notifyTimeout = 5 * time.Second
	// handlerTimeout bounds a handler: a CSI driver's node has 2 minutes.
	handlerTimeout = 3 * time.Minute
	// firstRetry and lastRetry are the kubelet's.
	firstRetry = 500 * time.Millisecond
	lastRetry  = 2*time.Minute + 2*time.Second
)

// Handler uses the plugins of one type. Calls for different sockets overlap.
type Handler interface {
	// Validate reports whether a plugin could be used, by its versions foremost.
	Validate(name, endpoint string, versions []string) error
	// Register starts its use. ctx has a deadline.
	Register(ctx context.Context, name, endpoint string, versions []string) error
	// Deregister ends its use. It is called for each plugin for which
	// Register was called and succeeded, and must not wait for the plugin.
	Deregister(name, endpoint string)
}

// Plugin is one behind its registration socket. Calls end when their ctx does.
type Plugin interface {
	Info(ctx context.Context) (Info, error)
	// Notify informs the plugin whether it is registered and, if not, why.
	Notify(ctx context.Context, registered bool, why string) error
	Close() error
}

// Info is what a plugin says of itself.
type Info struct {
	Type, Name string
	// Endpoint is the socket that it serves at; "" means the same one.
	Endpoint string
	Versions []string
}

// Config holds what a Manager needs. Dir is required; the zero value of every
// other field means the default named beside it.
type Config struct {
	// Dir is where plugins put their sockets, also in directories below: the
	// kubelet's is /var/lib/kubelet/plugins_registry. It is made if it is not
	// there, and nothing in it is ever removed.
	Dir string
	// Handlers are those of each type, in the order in which they are asked.
	Handlers map[string][]Handler
	// Rescan is how often the directory is looked at unasked; 1m.
	Rescan time.Duration
	// Connect connects to a socket; by gRPC.
	Connect func(ctx context.Context, socket string) (Plugin, error)

	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported

	look func(dir string) (map[string]identity, error) // tests look elsewhere
	wake <-chan struct{}
}

// Manager watches the directory.
type Manager struct {
	cfg Config
	met *metrics

	mu      sync.Mutex
	sockets map[string]*socket
}

// New checks cfg and returns a Manager at rest.
func New(cfg Config) (*Manager, error) {
	var errs []error
	if !filepath.IsAbs(cfg.Dir) {
		errs = append(errs, fmt.Errorf("Config.Dir is %q; want an absolute path", cfg.Dir))
	}
	if cfg.Rescan < 0 {
		errs = append(errs, fmt.Errorf("Config.Rescan is %v; want a positive duration", cfg.Rescan))
	}
	for _, typ := range slices.Sorted(maps.Keys(cfg.Handlers)) {
		if len(cfg.Handlers[typ]) == 0 || slices.Contains(cfg.Handlers[typ], nil) {
			errs = append(errs, fmt.Errorf("Config.Handlers[%q] is %v; want some handlers", typ, cfg.Handlers[typ]))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("pluginmgr: %w", err)
	}
	if cfg.Rescan == 0 {
		cfg.Rescan = defaultRescan
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

// Run finds plugins until ctx ends, and returns nil when no call is under way.
// Plugins stay registered then: their handlers end by themselves. It may be
// called once.
func (m *Manager) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wake, rescan := m.cfg.wake, m.cfg.Rescan
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

// update acts on what was found. If it is not all that there is, a plugin whose
// socket was not found is gone only if its socket is, and no more than maxSockets
// are taken.
func (m *Manager) update(ctx context.Context, wg *sync.WaitGroup, found map[string]identity, partial bool) {
	if partial {
		m.addKnown(found)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for path, s := range m.sockets {
		if _, there := found[path]; !there {
			s.want(nil)
		}
	}
	for path, id := range found {
		s := m.sockets[path]
		switch {
		case s != nil:
			s.want(&id)
		case len(m.sockets) < maxSockets:
			s = &socket{m: m, path: path, changed: make(chan struct{}, 1), desired: &id}
			m.sockets[path] = s
			m.met.total.WithLabelValues(path, "desired").Set(1)
			wg.Go(func() { s.run(ctx) })
		}
	}
}

// addKnown adds the sockets that are known and still there.
func (m *Manager) addKnown(found map[string]identity) {
	m.mu.Lock()
	paths := slices.Collect(maps.Keys(m.sockets))
	m.mu.Unlock()
	for _, path := range paths {
		if _, there := found[path]; there {
			continue
		}
		if id, err := identify(path); err == nil {
			found[path] = id
		}
	}
}

// State is how it stands with one socket.
type State struct {
	Socket string
	Info   Info
	// Registered reports that a handler uses the plugin.
	Registered bool
	// Trouble says why not, and Retry when it is tried again.
	Trouble string
	Retry   time.Time
}

// Plugins reports each socket, sorted by path.
func (m *Manager) Plugins() []State {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []State
	for _, path := range slices.Sorted(maps.Keys(m.sockets)) {
		out = append(out, m.sockets[path].state())
	}
	return out
}

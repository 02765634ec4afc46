package resources

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/pluginmgr"
)

// PluginsConfig configures [Plugins]. Dir is required. Every other field has a default for its
// zero value.
type PluginsConfig struct {
	// Dir is the directory of the plugins' sockets; the kubelet's is
	// /var/lib/kubelet/plugins_registry. It is created if it does not exist.
	Dir string
	// Drivers is the directory for the drivers' own sockets and mounts; the kubelet's is
	// /var/lib/kubelet/plugins. Manifests of CSI drivers mount it and require that it exists. It is
	// created if it does not exist. If it is "", no directory is created.
	Drivers string
	// Handlers has the handlers of each type of plugins, in the order in which they are called.
	Handlers map[string][]pluginmgr.Handler
	// After are channels for which the part waits: it looks for plugins when all of them are
	// closed. Each is closed when its handler accepts plugins. If there are none, the part looks
	// for plugins at once.
	After []<-chan struct{}

	Log     *zap.Logger           // if nil, nothing is logged
	Metrics prometheus.Registerer // if nil, metrics are not exported
}

// Plugins is the part that finds plugins by their sockets (plugin registration, v1) and
// registers them with their handlers: device plugins, DRA drivers and CSI drivers.
//
//	p, err := resources.NewPlugins(resources.PluginsConfig{
//		Dir: "/var/lib/kubelet/plugins_registry",
//		Handlers: map[string][]pluginmgr.Handler{
//			pluginmgr.DevicePlugin: {deviceManager.Registrar()},
//			pluginmgr.DRAPlugin:    {draManager.Registrar()},
//		},
//		After: []<-chan struct{}{devices.Ready(), claims.Ready()},
//	})
//
// Its methods may be called from any goroutine.
//
// # Hooks
//
// The only hook is Run. It waits until the parts that use plugins are ready, so that no
// registration fails because it comes too early. Then it looks for plugins until its
// context ends. It owns every goroutine.
//
// # Faults
//
// As in package pluginmgr, a plugin that hangs delays no other plugin, and a plugin that fails is
// tried again as long as its socket exists. If a channel of After is never closed, for example
// because a disk hangs, plugins are not registered; nothing else waits for this.
type Plugins struct {
	drivers string
	after   []<-chan struct{}
	plugins *pluginmgr.Manager
	log     *zap.Logger
}

var _ part.Runner = (*Plugins)(nil)

// NewPlugins checks cfg and returns a part.
func NewPlugins(cfg PluginsConfig) (*Plugins, error) {
	if slices.Contains(cfg.After, nil) {
		return nil, errors.New("plugins: PluginsConfig.After has a nil channel, which is never closed")
	}
	m, err := pluginmgr.New(pluginmgr.Config{Dir: cfg.Dir, Handlers: cfg.Handlers, Log: cfg.Log, Metrics: cfg.Metrics})
	if err != nil {
		return nil, fmt.Errorf("plugins: %w", err)
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return &Plugins{drivers: cfg.Drivers, after: cfg.After, plugins: m, log: cfg.Log}, nil
}

// Name implements part.Part.
func (p *Plugins) Name() string { return "plugins" }

// Run implements part.Runner.
func (p *Plugins) Run(ctx context.Context) error {
	if p.drivers != "" {
		if err := os.MkdirAll(p.drivers, 0o750); err != nil { // the kubelet's mode
			p.log.Warn("failed to create directory of drivers", zap.String("dir", p.drivers), zap.Error(err))
		}
	}
	for _, ready := range p.after {
		select {
		case <-ctx.Done():
			return nil
		case <-ready:
		}
	}
	return p.plugins.Run(ctx)
}

// Plugins returns the plugins whose sockets were found, sorted by path, with the state of each. It
// reads memory only.
func (p *Plugins) Plugins() []pluginmgr.State { return p.plugins.Plugins() }

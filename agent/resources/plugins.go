package resources

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/pluginmgr"
)

// PluginsConfig configures [Plugins]. Dir is required; the zero value of every other field means
// the default named beside it.
type PluginsConfig struct {
	// Dir is the directory of the plugins' sockets; the kubelet's is
	// /var/lib/kubelet/plugins_registry. It is created if it does not exist.
	Dir string
	// Handlers has the handlers of each type of plugins, in the order in which they are called.
	Handlers map[string][]pluginmgr.Handler
	// After are channels that are closed when the handlers accept plugins; none.
	After []<-chan struct{}

	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported
}

// Plugins is the part that finds plugins by their sockets
// (plugin registration, v1) and brings them to whoever uses them: device plugins,
// DRA drivers, CSI drivers.
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
// Run looks for plugins until its context ends, once the parts that use them are
// ready: until then no plugin is told that it could not be registered. It owns
// every goroutine.
//
// # Faults
//
// Those of package pluginmgr: a plugin that hangs holds up itself alone, and one
// that fails is tried again for as long as its socket is there. If one of After is
// never closed, as with a disk that hangs, no plugin is looked for, and nothing
// else waits for that.
type Plugins struct {
	after   []<-chan struct{}
	plugins *pluginmgr.Manager
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
	return &Plugins{after: cfg.After, plugins: m}, nil
}

// Name implements part.Part.
func (p *Plugins) Name() string { return "plugins" }

// Run implements part.Runner.
func (p *Plugins) Run(ctx context.Context) error {
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

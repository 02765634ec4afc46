package plugins

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

// Config holds what a Part needs. Dir is required; the zero value of every other
// field means the default named beside it.
type Config struct {
	// Dir is where plugins put their sockets: the kubelet's is
	// /var/lib/kubelet/plugins_registry. It is made if it is not there.
	Dir string
	// Handlers are those of each type of plugins, in the order in which they are
	// asked.
	Handlers map[string][]pluginmgr.Handler
	// After are closed when the handlers can take plugins; none are waited for.
	After []<-chan struct{}

	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported
}

// Part finds plugins. Its methods may be called from any goroutine.
type Part struct {
	after   []<-chan struct{}
	plugins *pluginmgr.Manager
}

var _ part.Runner = (*Part)(nil)

// New checks cfg and returns a Part at rest.
func New(cfg Config) (*Part, error) {
	if slices.Contains(cfg.After, nil) {
		return nil, errors.New("plugins: Config.After has a nil channel, which is never closed")
	}
	m, err := pluginmgr.New(pluginmgr.Config{Dir: cfg.Dir, Handlers: cfg.Handlers, Log: cfg.Log, Metrics: cfg.Metrics})
	if err != nil {
		return nil, fmt.Errorf("plugins: %w", err)
	}
	return &Part{after: cfg.After, plugins: m}, nil
}

// Name implements part.Part.
func (p *Part) Name() string { return "plugins" }

// Run implements part.Runner.
func (p *Part) Run(ctx context.Context) error {
	for _, ready := range p.after {
		select {
		case <-ctx.Done():
			return nil
		case <-ready:
		}
	}
	return p.plugins.Run(ctx)
}

// Plugins lists the plugins whose sockets were found, sorted by path, with how
// each is. It reads memory only.
func (p *Part) Plugins() []pluginmgr.State { return p.plugins.Plugins() }

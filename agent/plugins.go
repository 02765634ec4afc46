package agent

import (
	"context"
	"maps"
	"slices"

	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/pluginmgr"
)

// newPlugins makes what finds plugins by their sockets; nil, if there is no
// directory for them.
func (a *Agent) newPlugins() (*pluginmgr.Manager, error) {
	c := &a.cfg
	if c.PluginDir == "" {
		return nil, nil
	}
	handlers := map[string][]pluginmgr.Handler{}
	if d, ok := c.Devices.(interface{ Registrar() devicemgr.Registrar }); ok {
		handlers[pluginmgr.DevicePlugin] = []pluginmgr.Handler{d.Registrar()}
	}
	a.claimHandlers(handlers)
	for _, typ := range slices.Sorted(maps.Keys(c.PluginHandlers)) {
		handlers[typ] = append(handlers[typ], c.PluginHandlers[typ]...)
	}
	return pluginmgr.New(pluginmgr.Config{Dir: c.PluginDir, Handlers: handlers, Log: c.Log.Named("pluginmgr"), Metrics: c.Metrics})
}

// runPlugins finds plugins until ctx ends. What takes them up may begin later
// than they come: they are tried again.
func (a *Agent) runPlugins(ctx context.Context) error {
	if a.plugins == nil {
		return nil
	}
	if a.cfg.Devices != nil {
		select {
		case <-ctx.Done():
			return nil
		case <-a.decisions.restored:
		}
	}
	if err := a.claimsReady(ctx); err != nil {
		return nil //nolint:nilerr // the end came first
	}
	return a.plugins.Run(ctx)
}

// Plugins tells of each plugin whose socket was found; none, without
// Config.PluginDir.
func (a *Agent) Plugins() []pluginmgr.State {
	if a.plugins == nil {
		return nil
	}
	return a.plugins.Plugins()
}

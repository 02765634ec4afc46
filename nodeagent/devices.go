package nodeagent

import (
	"context"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/resources"
	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/dra"
	"github.com/nodewright/nodewright/pluginmgr"
)

// The makers of parts for devices: plugins at the kubelet's sockets, DRA claims,
// and the podresources API. They share the plugin directory, whose part is made
// after them.

// longestSocketPath is the longest path in a sockaddr_un, without its final zero
// (unix(7)).
const longestSocketPath = 107

// The kubelet's paths below its root directory, which plugins use.
const (
	devicePluginDir = "device-plugins"
	podResourcesDir = "pod-resources"
	pluginDir       = "plugins_registry"
	driversDir      = "plugins"
	socketName      = "kubelet.sock"
)

// devicePluginCheck is the name of the health check of the device plugin
// registration.
const devicePluginCheck = "device-plugin"

// roomForSockets reports whether sockets fit below the root directory: its path may
// be too long. Tests and nodes of users without privileges have such paths; they
// still run pods.
func (b *Builder) roomForSockets() bool {
	return max(len(b.Path(podResourcesDir, socketName)), len(b.Path(devicePluginDir, socketName))) <= longestSocketPath
}

// Devices makes the part for devices of plugins, which register at the kubelet's socket: see
// [resources.Devices]. It returns nil if the path of the root directory is too long for sockets.
func Devices(b *Builder) (part.Part, error) {
	if !b.Settings.NoPluginSockets && !b.roomForSockets() {
		b.Log.Warn("disabled device plugins and pod resources: path of the root directory is too long for sockets", zap.String("dir", b.Config.RootDir))
		return nil, nil //nolint:nilnil // a node without this part
	}
	fit, err := b.placement()
	if err != nil {
		return nil, err
	}
	// Placement gives the NUMA nodes. Without placement there are none, and devices are chosen by
	// their IDs.
	sockets := b.Path(devicePluginDir)
	if b.Settings.NoPluginSockets {
		sockets = ""
	}
	m, err := devicemgr.New(devicemgr.Config{
		SocketDir: sockets, Store: b.Store("devices", "devicemgr"), Machine: fit.Machine, Claimed: dra.Claimed,
		Log: b.Log.Named("devicemgr"), Metrics: b.Metrics,
	})
	if err != nil {
		return nil, err
	}
	p, err := resources.NewDevices(resources.DevicesConfig{Manager: m, Log: b.Log.Named("devices")})
	if err != nil {
		return nil, err
	}
	f := b.Facts
	// The node's status and the part for pod resources, which are created later, read it.
	f.Devices.Give(m)
	f.FreshDevices, f.OfferDevices = p.FreshDevices, m.Offer
	f.Checks = append(f.Checks, Check{Name: devicePluginCheck, Err: m.Healthy})
	// Plugins are searched only when the devices of running pods are known: otherwise these devices
	// could be allocated to other pods.
	f.HandlePlugins(PluginKind{Type: pluginmgr.DevicePlugin, Handler: m.Registrar(), After: p.Ready()})
	return p, nil
}

// Claims makes the part for devices of ResourceClaims, including claims in manifests: see
// [resources.Claims].
func Claims(b *Builder) (part.Part, error) {
	boot, err := b.boot()
	if err != nil {
		b.Log.Warn("failed to read boot ID; claims of pods that do not run are prepared again", zap.Error(err))
	}
	// The manager needs a lookup of claims before the part that knows the claims is created.
	lookup := &resources.ClaimLookup{}
	m, err := dra.New(dra.Config{
		Store: b.Store("dra", "dra"), Claims: lookup, Boot: boot, KubeletDir: b.Config.RootDir, Log: b.Log.Named("dra"), Metrics: b.Metrics,
	})
	if err != nil {
		return nil, err
	}
	f := b.Facts
	p, err := resources.NewClaims(resources.ClaimsConfig{Manager: toldDrivers{m, f}, Lookup: lookup, Log: b.Log.Named("dra")})
	if err != nil {
		return nil, err
	}
	f.Claims.Give(p.Held())
	f.OfferDriver = m.Offer
	f.Drivers = func() (names []string) {
		for _, d := range m.Drivers() {
			if d.Connected {
				names = append(names, d.Name)
			}
		}
		return names
	}
	f.HandlePlugins(PluginKind{Type: pluginmgr.DRAPlugin, Handler: m.Registrar(), After: p.Ready()})
	return p, nil
}

// toldDrivers is a manager of DRA drivers that tells the cluster about connected and lost
// drivers. It subscribes to changes only in Run, so that a node that is created and closed, but
// not run, has started nothing.
type toldDrivers struct {
	*dra.Manager
	facts *Facts
}

// Run runs the manager.
func (m toldDrivers) Run(ctx context.Context) error {
	defer m.Subscribe(func(c dra.Change) {
		if len(c.Drivers)+len(c.Lost) > 0 {
			m.facts.DriversChanged()
		}
	})()
	return m.Manager.Run(ctx)
}

// Plugins makes the part that finds plugins by their sockets in the kubelet's directory, and
// passes them to earlier parts: see [resources.Plugins]. It returns nil if no earlier part
// accepts plugins.
func Plugins(b *Builder) (part.Part, error) {
	kinds := b.Facts.Plugins.Need()
	if len(kinds) == 0 || b.Settings.NoPluginSockets {
		return nil, nil //nolint:nilnil // a node without this part
	}
	handlers := map[string][]pluginmgr.Handler{}
	var after []<-chan struct{}
	for _, k := range kinds {
		handlers[k.Type] = append(handlers[k.Type], k.Handler)
		if k.After != nil {
			after = append(after, k.After)
		}
	}
	return resources.NewPlugins(resources.PluginsConfig{
		Dir: b.Path(pluginDir), Drivers: b.Path(driversDir), Handlers: handlers, After: after,
		Log: b.Log.Named("pluginmgr"), Metrics: b.Metrics,
	})
}

// PodResources makes the part that serves the podresources API at the kubelet's socket, with the
// data of earlier parts: see [resources.PodResources].
func PodResources(b *Builder) (part.Part, error) {
	if b.Settings.NoPluginSockets || !b.roomForSockets() {
		return nil, nil //nolint:nilnil // a node without this part
	}
	// Nil values are left out of the answers.
	f := b.Facts
	return resources.NewPodResources(resources.PodResourcesConfig{
		Socket:  b.Path(podResourcesDir, socketName),
		Devices: f.Devices.Need(), Claims: f.Claims.Need(), CPUs: f.CPUs.Need(), Memory: f.Memory.Need(), Log: b.Log.Named("podresources"), Metrics: b.Metrics,
	})
}

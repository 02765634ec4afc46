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

// The makers of devices: plugins at the kubelet's sockets, claims of DRA, and who
// asks which pod has what. They share the plugin directory, whose part is made
// after them.

// longestSocketPath is what fits into a sockaddr_un beside its final zero
// (unix(7)).
const longestSocketPath = 107

// The kubelet's paths below its root directory. Plugins in the field look for them
// there and nowhere else.
const (
	devicePluginDir = "device-plugins"
	podResourcesDir = "pod-resources"
	pluginDir       = "plugins_registry"
	socketName      = "kubelet.sock"
)

// devicePluginCheck is the check of what device plugins register with.
const devicePluginCheck = "device-plugin"

// roomForSockets reports whether sockets fit below the root directory: its path may
// be too long. Tests and nodes of users without privileges have such paths; they
// still run pods.
func (b *Builder) roomForSockets() bool {
	return max(len(b.Path(podResourcesDir, socketName)), len(b.Path(devicePluginDir, socketName))) <= longestSocketPath
}

// Devices gives pods the devices of plugins, which register where the kubelet's
// do: see [resources.Devices]. A root directory whose path is too long for
// sockets goes without.
func Devices(b *Builder) (part.Part, error) {
	if !b.Settings.NoPluginSockets && !b.roomForSockets() {
		b.Log.Warn("no device plugins, and no pod resources: the path of the root directory is too long for sockets", zap.String("dir", b.Config.RootDir))
		return nil, nil //nolint:nilnil // a node without this part
	}
	fit, err := b.placement()
	if err != nil {
		return nil, err
	}
	// The NUMA nodes are those of placement: empty, if nothing is placed, and
	// devices are then chosen by their own order.
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
	// For the node's status and pod resources, which are made later.
	f.Devices, f.FreshDevices, f.OfferDevices = m, p.FreshDevices, m.Offer
	f.Checks = append(f.Checks, Check{Name: devicePluginCheck, Err: m.Healthy})
	f.PluginHandlers[pluginmgr.DevicePlugin] = append(f.PluginHandlers[pluginmgr.DevicePlugin], m.Registrar())
	// Plugins are found only when it is known which devices running pods have:
	// those of a running pod must not go to another.
	f.PluginsAfter = append(f.PluginsAfter, p.Ready())
	return p, nil
}

// Claims gives pods the devices of their ResourceClaims, those of manifests among
// them: see [resources.Claims].
func Claims(b *Builder) (part.Part, error) {
	boot, err := b.boot()
	if err != nil {
		b.Log.Warn("it is not known whether the machine was booted since; what no running pod uses is prepared again", zap.Error(err))
	}
	// The manager asks for claims before the part that knows them is made.
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
	f.Claims, f.OfferDriver = p.Held(), m.Offer
	f.Drivers = func() (names []string) {
		for _, d := range m.Drivers() {
			if d.Connected {
				names = append(names, d.Name)
			}
		}
		return names
	}
	f.PluginHandlers[pluginmgr.DRAPlugin] = append(f.PluginHandlers[pluginmgr.DRAPlugin], m.Registrar())
	f.PluginsAfter = append(f.PluginsAfter, p.Ready())
	return p, nil
}

// toldDrivers is a manager that lets the cluster know when a driver has come or gone. It
// subscribes when it runs: a node that is made and closed has started nothing.
type toldDrivers struct {
	*dra.Manager
	facts *Facts
}

// Run is that of the manager.
func (m toldDrivers) Run(ctx context.Context) error {
	defer m.Subscribe(func(c dra.Change) {
		if len(c.Drivers)+len(c.Lost) > 0 {
			m.facts.DriversChanged()
		}
	})()
	return m.Manager.Run(ctx)
}

// Plugins finds plugins by their sockets in the kubelet's directory, for the parts
// before it, if any of them takes some: see [resources.Plugins]. It has to be
// listed after the makers whose plugins it finds.
func Plugins(b *Builder) (part.Part, error) {
	if len(b.Facts.PluginHandlers) == 0 || b.Settings.NoPluginSockets {
		return nil, nil //nolint:nilnil // a node without this part
	}
	return resources.NewPlugins(resources.PluginsConfig{
		Dir: b.Path(pluginDir), Handlers: b.Facts.PluginHandlers, After: b.Facts.PluginsAfter,
		Log: b.Log.Named("pluginmgr"), Metrics: b.Metrics,
	})
}

// PodResources serves which pods have what of the parts before it, at the
// kubelet's socket: see [resources.PodResources].
func PodResources(b *Builder) (part.Part, error) {
	if b.Settings.NoPluginSockets || !b.roomForSockets() {
		return nil, nil //nolint:nilnil // a node without this part
	}
	// What is nil here is left out of the answers.
	f := b.Facts
	return resources.NewPodResources(resources.PodResourcesConfig{
		Socket:  b.Path(podResourcesDir, socketName),
		Devices: f.Devices, Claims: f.Claims, CPUs: f.CPUs, Memory: f.Memory, Log: b.Log.Named("podresources"), Metrics: b.Metrics,
	})
}

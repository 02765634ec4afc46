// Package plugins is the part of a node agent that finds plugins by their sockets
// (plugin registration, v1) and brings them to whoever uses them: device plugins,
// DRA drivers, CSI drivers.
//
//	p, err := plugins.New(plugins.Config{
//		Dir: "/var/lib/kubelet/plugins_registry",
//		Handlers: map[string][]pluginmgr.Handler{
//			pluginmgr.DevicePlugin: {deviceManager.Registrar()},
//			pluginmgr.DRAPlugin:    {draManager.Registrar()},
//		},
//		After: []<-chan struct{}{devices.Ready(), claims.Ready()},
//	})
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
//
// Tier: beta.
package plugins

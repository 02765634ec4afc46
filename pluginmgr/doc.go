// Package pluginmgr discovers plugins by their sockets in a directory, performs the handshake
// (plugin registration, v1) and registers them with their handlers: device plugins, CSI
// drivers, DRA drivers.
//
//	m, err := pluginmgr.New(pluginmgr.Config{
//		Dir: "/var/lib/kubelet/plugins_registry",
//		Handlers: map[string][]pluginmgr.Handler{
//			pluginmgr.DevicePlugin: {devices.Registrar()},
//		},
//	})
//	if err != nil {
//		return err
//	}
//	return m.Run(ctx)
//
// A [Handler] serves plugins of one type. If a type has several, they are asked in order, and
// the first that accepts the plugin's versions gets it.
//
// # Order
//
// A new socket is registered, a removed one is deregistered, and one that was replaced is
// deregistered and registered again. Operations on one socket are serial; different sockets
// never wait for each other. Each registration with a handler is followed by exactly one
// deregistration.
//
// # Faults
//
// Every call has a deadline. A failed handshake is retried while the socket exists, with a
// back-off from 500 ms to 2m2s, and at once when the socket is replaced; the plugin is
// notified of the error. Only sockets count, not links to them or names that begin with a
// dot. The directory is scanned when the kernel reports a change, and every Config.Rescan,
// since notifications can be lost; without notifications, every second.
//
// # Limits
//
// At most 1024 sockets, 16,384 directory entries and a depth of eight directories; registered
// plugins remain registered when there are more. At most one scan in 100 ms. A plugin's
// description of itself has 64 KiB at most, and the first 1 KiB of an error's text is kept.
//
// Tier: beta.
package pluginmgr

// Package pluginmgr discovers plugins by their sockets in a directory, performs the handshake
// (plugin registration, v1) and registers them with their handlers: device plugins, CSI drivers,
// DRA drivers.
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
// A [Handler] serves plugins of one type. If a type has several handlers, they are asked in
// order, and the first that accepts the plugin's versions gets it.
//
// # Order
//
// The plugin of a new socket is registered, and that of a removed socket is deregistered. If a
// socket is replaced, its plugin is deregistered and registered again. Operations on one socket
// are serial; different sockets never wait for each other. Each registration with a handler is
// followed by exactly one deregistration.
//
// # Failures
//
// Every call has a deadline. A failed handshake is retried while the socket exists, with a
// back-off from 500 ms to 2m2s, and at once if the socket is replaced. The plugin receives the
// error. Links to sockets and names that begin with a dot are ignored. The directory is scanned
// when the kernel reports a change, and every minute, since notifications can be lost; if
// notifications do not work at all, every second.
//
// # Limits
//
// A scan reads at most 1024 sockets, 16,384 directory entries and eight levels of directories. If
// there are more, registered plugins remain registered. There is at most one scan in 100 ms. A
// plugin's Info has at most 64 KiB, and the first 1 KiB of an error's text is kept.
//
// Tier: beta.
package pluginmgr

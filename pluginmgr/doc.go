// Package pluginmgr finds plugins by their sockets in a directory, shakes hands
// with them (plugin registration, v1) and brings them to whoever can use them:
// device plugins, CSI drivers, DRA drivers.
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
// A [Handler] is for the plugins of a type. Those of one type are asked in
// turn, and the first that accepts a plugin's versions has it.
//
// # Order
//
// A socket that appears is registered, one that disappears is deregistered, and
// one that was made again is both, in this order. What concerns one socket
// happens one after the other; different sockets wait for each other never.
// A handler hears of a plugin's end as often as of its start.
//
// # Faults
//
// Every call has a deadline. A handshake that fails is tried again, after
// 500 ms at first and 2m2s at last, for as long as the socket is there, and at
// once when it is made again; the plugin is told why. Only sockets count: links
// to them do not, nor names that begin with a dot. The directory is looked at
// when the kernel reports a change in it, and every Config.Rescan, since the
// kernel may lose some; if it cannot tell at all, every second.
//
// # Limits
//
// 1024 sockets are plugins, among 16,384 entries that are looked at, up to eight
// directories deep; a plugin that is registered stays when there are more. The
// directory is looked at every 100 ms at most. What a plugin says of itself has
// 64 KiB at most, and of an error's text 1 KiB is kept and told.
//
// Tier: beta.
package pluginmgr

// Package nri lets plugins of the Node Resource Interface, as containerd and CRI-O run them, follow
// and change the containers of package localcri.
//
//	plugins, err := nri.New(nri.Config{Socket: "/var/run/nri/nri.sock"})
//	if err != nil {
//		return err
//	}
//	rt, err := localcri.NewInProcess(ctx, localcri.InProcessConfig{Hooks: plugins})
//
// # Plugins
//
// External plugins connect to Config.Socket at any time. The plugins in Config.PluginDir are started
// as child processes, and end with this one. When a plugin connects, it gets the sandboxes and
// containers that exist; its answer may update containers. Later it is asked at each event that it
// subscribed to. The protocol, the order of plugins, conflicts between them and validators are those
// of github.com/containerd/nri/pkg/adaptation.
//
// # Faults
//
// A plugin that does not answer within 2 s is disconnected, and the request proceeds without it,
// unless the plugin's own failure policy says otherwise. Plugins are asked one after another, and one
// request at a time, so that every request waits at most 2 s for each plugin that hangs. An error
// that a plugin returns fails the request; the error names the plugin. A change that the runtime
// cannot make fails the creation of the container; the error names the plugins that changed the
// container, the field and the value.
//
// New sandboxes and containers wait until the socket is served and the plugins of Config.PluginDir
// have started. While the socket cannot be served, their creation fails.
//
// # Trust
//
// A plugin can run programs as root (OCI hooks) and give containers any device. So only root may
// connect: the socket is in a directory that only root can access, and its mode is 0600.
//
// # Ownership
//
// [New] has no side effects. [Plugins.Run], which the runtime calls, serves the socket and owns all
// goroutines except those of connections of external plugins: these end with the plugin or with this
// process.
//
// Tier: beta.
package nri

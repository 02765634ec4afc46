// Package plugins has the volume plugins of this module, one type or constructor
// for each kind of volume, and all of them in one list.
//
//	list, err := plugins.New(plugins.Config{Mounter: &mount.Kernel{}, Root: "/var/lib/agent", Source: objects})
//	if err != nil {
//		return err
//	}
//	m, err := volumemgr.New(volumemgr.Config{Plugins: list, Mounter: plugins.Mounter(&mount.Kernel{}), ...})
//
// An agent that needs fewer kinds makes single plugins: [NewEmptyDir], [NewHostPath],
// [NewLocal], [NewNFS], [NewImage], [NewISCSI] and [NewFC]. What is not called is not
// linked. Plugins that write files (configMap, secret, downwardAPI and projected
// volumes) are in package content, and container storage interface drivers in package
// csi.
//
// # Faults
//
// Each type says what it does after a failure, a restart of the agent and one of the
// machine. All of them keep volumes that pods have mounted when a set-up fails, and
// [volumemgr/plugintest.Conform] holds them to that.
//
// Tier: beta.
package plugins

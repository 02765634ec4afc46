// Package plugins has the volume plugins of this module, one for each kind
// of volume.
//
//	list, err := plugins.New(plugins.Config{Mounter: &mount.Kernel{}, Root: "/var/lib/agent", Source: objects})
//	if err != nil {
//		return err
//	}
//	m, err := volumemgr.New(volumemgr.Config{Plugins: list, Mounter: plugins.Mounter(&mount.Kernel{}), ...})
//
// [New] makes all of them; an agent that wants fewer kinds takes others out of the
// list. Plugins that write files (configMap, secret, downwardAPI and projected
// volumes) are [Content]; drivers of the container storage interface are in package csi.
//
// # Faults
//
// Each type says what it does after a failure, a restart of the agent and one of the
// machine. All of them keep volumes that pods have mounted when a set-up fails, and
// [volumemgr/plugintest.Conform] holds them to that.
//
// # Volumes of files
//
// [Content] makes the volumes that the node writes files into: configMap,
// secret, downwardAPI and projected.
//
//	cfg := plugins.ContentConfig{Mounter: &mount.Kernel{}, Source: objects}
//	p, err := plugins.NewContent(plugins.ContentConfigMap, cfg)
//	if err != nil {
//		return err
//	}
//	// p is a volumemgr.Plugin and a volumemgr.Refresher
//
// Objects come through [ContentSource], tokens, trust bundles and pod certificates
// through interfaces of their own that may be left out. The files are published
// by package atomicdir, so that all of them change at once; those of secrets,
// downwardAPI and projected volumes are in memory.
//
// # Volumes of files: when nothing changed
//
// A volume that is set up again is compared with what was written last by the
// versions that the source gives its objects, without a look at the disk. Only
// what has a new version, or none, is compared file by file; only a difference
// is written.
//
// # Volumes of files: faults
//
// Everything is fetched and checked before the disk is touched: with an error
// the files stay as they are. An optional object may be missing, but an answer
// that is no answer is an error. All mistakes of a projected volume are told at
// once. A set-up that fails takes down what it made itself, and nothing that was
// there before: a container that uses the volume keeps what it has.
//
// Tier: beta.
package plugins

// Package plugins has the volume plugins of this module, one for each kind of volume.
//
//	list, err := plugins.New(plugins.Config{Mounter: &mount.Kernel{}, Root: "/var/lib/agent", Source: objects})
//	if err != nil {
//		return err
//	}
//	m, err := volumemgr.New(volumemgr.Config{Plugins: list, Mounter: plugins.Mounter(&mount.Kernel{}), ...})
//
// [New] returns all of them; an agent that needs fewer kinds removes the others from the list.
// Plugins that write files (configMap, secret, downwardAPI and projected volumes) are [Content];
// CSI drivers are in package csi.
//
// # Faults
//
// The comment of each type describes its behaviour after a failure and after restarts of the
// agent and the machine. If a set-up fails, no plugin changes a volume that pods have mounted;
// [volumemgr/plugintest.Conform] tests that.
//
// # Volumes of files
//
// [Content] implements the volumes whose files the node writes: configMap, secret, downwardAPI
// and projected.
//
//	cfg := plugins.ContentConfig{Mounter: &mount.Kernel{}, Source: objects}
//	p, err := plugins.NewContent(plugins.ContentConfigMap, cfg)
//	if err != nil {
//		return err
//	}
//	// p is a volumemgr.Plugin and a volumemgr.Refresher
//
// Objects come from a [ContentSource]; tokens, trust bundles and pod certificates from optional
// interfaces. Package atomicdir publishes the files, so that all of them change at once. Files of
// secret, downwardAPI and projected volumes are in memory.
//
// # Volumes of files: when nothing changed
//
// A repeated set-up compares the versions of the objects with those that were written last,
// without accessing the disk. Only if a version differs or is missing, it compares the files, and
// writes those that differ.
//
// # Volumes of files: faults
//
// Everything is read and checked before the disk is changed, so after an error the files are as
// before. A missing optional object is not an error; every other failure is. All mistakes of a
// projected volume are reported at once. A failed set-up removes only what it created itself: a
// container that uses the volume keeps its files.
//
// Tier: beta.
package plugins

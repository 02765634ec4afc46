// Package plugins has the volume plugins of this module, one for each kind
// of volume.
//
//	list, err := plugins.New(plugins.Config{Mounter: &mount.Kernel{}, Root: "/var/lib/agent", Source: objects})
//	if err != nil {
//		return err
//	}
//	m, err := volumemgr.New(volumemgr.Config{Plugins: list, Mounter: plugins.Mounter(&mount.Kernel{}), ...})
//
// [New] returns all of them; an agent that needs fewer kinds removes the others
// from the list. Plugins that write files (configMap, secret, downwardAPI and
// projected volumes) are [Content]; CSI drivers are in package csi.
//
// # Faults
//
// The comment of each type describes its behaviour after a failure and after
// restarts of the agent and the machine. After a failed set-up all of them keep
// volumes that pods have mounted; [volumemgr/plugintest.Conform] tests that.
//
// # Volumes of files
//
// [Content] implements the volumes whose files the node writes: configMap, secret,
// downwardAPI and projected.
//
//	cfg := plugins.ContentConfig{Mounter: &mount.Kernel{}, Source: objects}
//	p, err := plugins.NewContent(plugins.ContentConfigMap, cfg)
//	if err != nil {
//		return err
//	}
//	// p is a volumemgr.Plugin and a volumemgr.Refresher
//
// Objects come from [ContentSource]; tokens, trust bundles and pod certificates
// from interfaces that are optional. Package atomicdir publishes the files, so that
// all of them change at once. Files of secret, downwardAPI and projected volumes
// are in memory.
//
// # Volumes of files: when nothing changed
//
// At a repeated set-up the versions of the objects are compared with those that
// were written last, without accessing the disk. Only if a version differs, or
// there is none, the files are compared; only a difference is written.
//
// # Volumes of files: faults
//
// Everything is read and checked before the disk is changed: after an error the
// files are as before. An optional object may be missing, but every other failure
// is an error. All faults of a projected volume are reported at once. A failed
// set-up removes only what it created itself: a container that uses the volume
// keeps its files.
//
// Tier: beta.
package plugins

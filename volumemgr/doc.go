// Package volumemgr mounts and unmounts the volumes of pods. It reacts to events only: a pod that
// comes or goes, an object that changes, a retry or an expiry that is due.
//
//	m, err := volumemgr.New(volumemgr.Config{Root: root, Plugins: plugins, Mounter: mounter})
//	if err != nil {
//		return err
//	}
//	go m.Run(ctx)
//	mounts, err := m.Mount(ctx, pod)    // before containers start, and at each sync
//	m.Changed(volumemgr.Ref{Kind: "ConfigMap", Namespace: "default", Name: "web"})
//	err = m.Unmount(ctx, pod.UID)       // when they have ended
//	err = m.Sweep(ctx, known)           // when a pod has gone
//
// # Volumes
//
// Each volume of a pod, and each device that is shared by volumes of several pods, has a
// record and at most one operation in flight; a mount excludes all other operations on the
// same device. A pure function of the record (decide) chooses the next operation. There is
// a goroutine for each running operation, and a timer for each pending retry or expiry.
//
// A failed operation is retried after 500 ms, then with doubled delays up to two minutes.
// [Manager.Mount] does not wait for retries: it returns when each volume is mounted or has
// failed, with [Error] values that contain the time of the next retry, and Config.Ready is
// called once the retries have succeeded. [Manager.Why] reports for each volume its state
// and since when, its first and last error, and the next retry.
//
// Changed content is pushed: the owner of ConfigMaps and Secrets calls [Manager.Changed],
// which updates the volumes that contain the object and retries those that could not be
// mounted without it. A plugin whose content expires returns the time of its next call.
//
// # Plugins
//
// A kind of volume implements [Plugin], and optional interfaces for what only some kinds
// can do. Package plugintest is the conformance suite for plugins. Package plugins has the
// plugins of this module, except for CSI drivers (package csi). Package mount implements
// [Mounter], which all plugins share.
//
// # Layout
//
// Directories below Config.Root are the kubelet's: pods/UID/volumes/PLUGIN/NAME,
// volumeDevices and volume-subpaths beside volumes, with '~' for the '/' of a
// plugin's name.
//
// # Faults
//
// The process may die at any point, and any call may fail: no data is deleted, no mount is
// leaked, and the next run reaches the desired state. Run begins by reading the directories
// of pods. Each volume found there is uncertain: it is set up again in place when Mount is
// called for its pod, and torn down when Unmount is called or when a Sweep does not list
// the pod, but not before. A failed set-up never changes a volume that containers may be
// using.
//
// Each plugin has a deadline for its operations. A volume whose operation exceeded it is
// uncertain, and is torn down later. An operation that never returns blocks its own volume,
// which [Manager.Why] reports as hung, but not the other volumes of the pod. It counts against
// the 16 concurrent operations for a second only. Run waits for it, so a plugin should abandon calls that cannot be
// interrupted.
//
// Directories are removed by a walk that cannot cross a mount point. Files and directories that
// belong to no plugin are removed only if they are empty directories, and never while anything is
// mounted below the pod's directory. Otherwise the errors of [Manager.Sweep] and [Manager.Remove]
// name the obstacle.
//
// # What it leaves to others
//
// Attachment by a controller, resizes, SELinux mount contexts, the list of pods, and the
// mounts of subPaths, which it only removes.
//
// Tier: beta.
package volumemgr

// Package volumemgr mounts the volumes of pods and takes them down again. It
// does nothing but when something has happened: a pod that is wanted or gone,
// an object that has changed, a retry or an expiry that is due.
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
// Each volume of a pod, and each device that volumes of several pods share, has
// a record and at most one operation at a time; operations of different pods on
// one device exclude each other where one of them mounts. What happens next is
// decided by a pure function of the record (decide). A goroutine lives as long
// as an operation, a timer as long as a back-off or content with an end: a node
// at rest has neither.
//
// An operation that fails is tried again after 500 ms, then twice that, up to
// two minutes. [Manager.Mount] does not wait for that: it returns when the last
// volume is mounted or has failed, with [Error] values that tell when it is
// worth asking again, and Config.Ready says when the retries have succeeded.
// [Manager.Why] reports each volume the state, since when, the first and the
// last error and the next try.
//
// Content that changes is pushed: whoever has ConfigMaps and Secrets calls
// [Manager.Changed], which wakes the volumes that show the object, those
// included that could not be mounted without it. A plugin whose content
// expires says when it wants to be called again.
//
// # Plugins
//
// [Plugin] is all that a kind of volume needs; what only some can do are
// interfaces of their own beside it. Package plugintest has a suite that a
// plugin has to pass. Package content below this one makes the volumes that the
// node writes files into, package plugins the other kinds; package mount is the
// mount table that all of them share.
//
// # Layout
//
// Directories below Config.Root are the kubelet's: pods/UID/volumes/PLUGIN/NAME,
// volumeDevices and volume-subpaths beside volumes, with '~' for the '/' of a
// plugin's name.
//
// # Faults
//
// A process may die at any point, and any call may fail: no data is deleted, no
// mount stays behind, and the next run ends with what is wanted. Run begins by
// taking over whatever pods' directories hold. All of it counts as uncertain:
// it is set up again, on top of what is there, when Mount is called for its
// pod; it is torn down when Unmount is called or when a Sweep does not know the
// pod, and not before. A set-up that fails on a volume that containers may be
// using changes nothing about it.
//
// An operation has the deadline of its plugin. One that ends by it counts as
// uncertain and will be torn down. One that does not return at all keeps its
// own volume, which [Manager.Why] shows as hung, and nothing else: neither the
// pod's other volumes nor a place among Config.Parallel. Run returns only when
// it does, so a plugin should leave behind what cannot be interrupted.
//
// Directories are removed by a walk that the kernel stops at mount points.
// What belongs to no plugin is removed only if it is empty directories, and
// never while anything is mounted below the pod's directory; [Manager.Sweep]
// and [Manager.Remove] name what is in the way.
//
// # What it leaves to others
//
// Attaching by a controller, resizing, SELinux mount contexts and the node
// affinity of persistent volumes; which pods there are; mounting parts of
// volumes (subPath), of which it removes the mounts.
//
// Tier: beta.
package volumemgr

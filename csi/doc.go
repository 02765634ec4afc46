// Package csi mounts volumes of CSI drivers: it queries the capabilities of drivers when they
// register, stages and publishes volumes, and unpublishes and unstages them, also after
// restarts of the agent. It is a client of the Node service of CSI 1.x.
//
//	m, err := csi.New(csi.Config{Root: "/var/lib/kubelet", NodeName: name, Mounter: &mount.Kernel{}})
//	if err != nil {
//		return err
//	}
//	volumes, err := volumemgr.New(volumemgr.Config{Plugins: append(others, m.Plugin()), ...})
//	...
//	plugins, err := pluginmgr.New(pluginmgr.Config{
//		Handlers: map[string][]pluginmgr.Handler{pluginmgr.CSIPlugin: {m.Registrar()}}, ...,
//	})
//	...
//	go m.Run(ctx)
//
// # Volumes
//
// [Plugin] mounts persistent volumes, as file systems and as block devices, and inline
// volumes of pods. Volumes of former in-tree drivers are translated. Paths and records
// (vol_data.json) are the kubelet's, so that a node can change between the two with its pods
// running; records are replaced atomically, also if the power fails.
//
// A driver is asked for its capabilities and its name of this node once, at its
// registration. A volume then takes one call, or two if it is staged.
//
// # Clusters
//
// Config.Cluster (a [plugins.StorageCluster]) gives access to CSIDriver, CSINode and
// VolumeAttachment objects. The node's own objects are written in the background: a driver is
// usable before that, and [Manager.Ready] reports when they are written. Without a cluster a
// node needs no CSIDriver objects: see Config.Cluster.
//
// # Faults
//
// A driver may be away, hang, lie and die at any moment, which affects its own volumes alone.
// Each call has a deadline of two minutes. It is not cancelled when its caller gives up:
// calls for one volume never overlap. After an error, directories and records are removed
// only if the driver has given up ([CallError.Final]) and nothing is mounted.
//
// A volume is recorded before the first call of its driver, and the record is removed after
// the driver has confirmed the removal. So an agent takes down what an earlier one has begun,
// and never unstages a volume that a pod has mounted.
//
// # Limits
//
// At most 256 KiB, 64 KiB of headers and 4096 fields for an answer, 4 KiB for a handle,
// 64 KiB for a record, and 2 MiB for the secrets of a call. The first 1 KiB of an error's
// text is kept, with the values of secrets removed.
//
// Tier: beta.
package csi

// Package csi mounts volumes of CSI drivers. It reads the capabilities of drivers when they
// register, stages and publishes volumes, and unpublishes and unstages them, also after restarts
// of the agent. It is a client of the Node service of CSI 1.x.
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
// [Plugin] mounts persistent volumes, as file systems and as block devices, and inline volumes of
// pods. Volumes of former in-tree drivers are translated. Paths and records (vol_data.json) are
// the kubelet's, so that a node can change between agent and kubelet with its pods running.
// Records are replaced atomically, even if the power fails.
//
// A driver returns its capabilities and its ID for this node once, when it registers. After that,
// a volume needs one call, or two if it is staged.
//
// # Clusters
//
// Config.Cluster (a [plugins.StorageCluster]) gives access to CSIDriver, CSINode and
// VolumeAttachment objects. The node's own objects are written in the background: a driver can be
// used earlier, and [Manager.Ready] reports when they are written. A node without a cluster needs
// no CSIDriver objects; see Config.Cluster.
//
// # Faults
//
// A driver may be missing, hang, return wrong answers or crash at any moment. That affects only
// its own volumes. Each call has a deadline of two minutes. A call is not cancelled when its
// caller gives up, and calls for one volume never overlap. After an error, directories and
// records are removed only if the error is final ([CallError.Final]) and nothing is mounted.
//
// A volume is recorded before the first call of its driver, and the record is removed after the
// driver has confirmed the removal. So an agent removes what an earlier process has begun, and
// never unstages a volume that a pod has mounted.
//
// # Limits
//
// An answer may have 256 KiB, 64 KiB of headers and 4096 fields; a handle 4 KiB; a record 64 KiB;
// the secrets of a call 2 MiB. The first 1 KiB of an error's text is kept, with the values of
// secrets removed.
//
// Tier: beta.
package csi

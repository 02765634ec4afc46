// Package csi makes volumes of CSI drivers: it finds out what drivers can do when
// they register, stages and publishes volumes, and takes them down again, whatever
// has become of the agent meanwhile. It speaks the Node service of CSI 1.x.
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
// [Plugin] makes persistent volumes, those of file systems and block devices, and
// those that a pod brings itself. Volumes of drivers that were part of Kubernetes are
// translated (package migration). Paths and records (vol_data.json) are the kubelet's,
// so that a machine can change from one to the other with its pods running; records
// are written so that a failure of the power leaves the old one or the new one.
//
// A driver is asked once, at its registration, what it can do and what it calls this
// node. To make a volume takes one call then, or two if it is staged.
//
// # Clusters
//
// What a cluster knows of drivers, nodes and attachments comes by Config.Cluster
// (package volumemgr/content). The node's objects follow in the background: a driver
// is used while they cannot be written, and [Manager.Ready] says when they stand.
// Without a cluster a node needs no CSIDriver objects: see Config.Cluster.
//
// # Faults
//
// A driver may be away, hang, lie and die at any moment, and costs its own volumes
// alone. Each call has a deadline of two minutes. It is not ended when its caller
// goes: calls about one volume never overlap, whoever gave up waiting. What an error
// leaves behind depends on whether the driver has given up ([CallError.Final]); only
// then, and only if nothing is mounted, are directories and records removed.
//
// A volume is remembered before a driver hears of it, and forgotten after it has
// answered that it is gone. So a life of the agent takes down all that another began,
// and never unstages what a pod has mounted.
//
// # Limits
//
// An answer has 256 KiB, 64 KiB of headers and 4096 fields at most, a handle 4 KiB, a
// record 64 KiB, the secrets of a call 2 MiB, and 1 KiB of an error's text is kept,
// from which the values of secrets are taken out.
//
// Tier: beta.
package csi

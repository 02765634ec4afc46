// Package storage is what an API server knows of storage drivers, as package csi
// wants it (volumemgr/content): CSIDriver objects, the node's CSINode, its attached
// volumes, and the statuses of claims whose volumes become larger.
//
//	s, err := storage.New(storage.Config{Client: client, NodeName: "edge-1", Node: node.Node})
//	...
//	go s.Run(ctx)
//	// and whenever the Node object is another one:
//	s.NodeChanged()
//
// CSIDriver objects are followed from the first question on, and kept over a restart.
//
// A node may read single VolumeAttachments and watch none. So the node's own object is
// what is waited for: a controller writes on it which volumes it has attached. A
// VolumeAttachment is read when that changes, and now and then besides, since a failure
// is on it alone.
package storage

// Package csi is the part of a node agent that gives pods the volumes of CSI drivers.
// It connects package github.com/nodewright/nodewright/csi to an agent: it gets
// Secrets, claims and volumes from the agent's sources, and explains what pods wait
// for.
//
//	p, err := csi.New(csi.Config{CSI: block.Config{Root: root, NodeName: name, Mounter: &mount.Kernel{}}})
//	...
//	cfg.Parts = append(cfg.Parts, p)
//	cfg.Volumes.Plugins = append(cfg.Volumes.Plugins, p.Plugin())
//	// and for a [resources.Plugins]:
//	handlers[pluginmgr.CSIPlugin] = []pluginmgr.Handler{p.Registrar()}
//
// # Hooks
//
// Run runs the drivers' manager. Admit rejects a pod if its volumes would exceed the
// limit that a driver reports for the node; it reads only memory. Explain says what a
// pod's volumes wait for. If a volume cannot be attached because the node has as many
// as it can have, the pod ends as Failed, with the reason
// VolumeAttachmentLimitExceeded, so that its controller creates another pod elsewhere.
//
// Tier: beta.
package csi

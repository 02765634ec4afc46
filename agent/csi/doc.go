// Package csi is the part of a node agent that gives pods the volumes of CSI drivers
// (package csi at the top): it brings drivers to the agent's volumes, finds Secrets,
// claims and volumes in the agent's sources, and explains what pods wait for.
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
// Run runs the drivers' manager. Admit rejects a pod whose volumes would be more than
// a driver says that the node can have; it reads memory alone. Explain says what a
// pod's volumes wait for. A pod whose volume cannot be attached because the node has as
// many as it can ends as Failed, with the reason VolumeAttachmentLimitExceeded, so that
// its controller makes another one elsewhere.
//
// Tier: beta.
package csi

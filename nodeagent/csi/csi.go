// Package csi adds CSI volumes to a node of package nodeagent. It is separate, so
// that a node without them does not link the CSI interface.
//
//	n, err := nodeagent.New(ctx, nodeagent.Options{
//		Parts: append([]nodeagent.Maker{csi.Volumes}, nodeagent.Standard()...),
//		...
//	})
//
// List [Volumes] before nodeagent.Plugins, which finds the drivers.
//
// Tier: beta.
package csi

import (
	part "github.com/nodewright/nodewright/agent/csi"
	agentpart "github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/csi"
	"github.com/nodewright/nodewright/nodeagent"
	"github.com/nodewright/nodewright/pluginmgr"
	"github.com/nodewright/nodewright/volumemgr/mount"
)

// Volumes makes the part for CSI volumes: see package agent/csi. Without a cluster, volumes and
// Secrets come from manifests, and no volume is attached.
func Volumes(b *nodeagent.Builder) (agentpart.Part, error) {
	f := b.Facts
	cfg := part.Config{
		CSI: csi.Config{
			Root: b.Config.RootDir, NodeName: b.Node.Name, Mounter: &mount.Kernel{}, FileLabel: labels("/"),
			InUse: f.Changed, Log: b.Log.Named("csi"), Metrics: b.Metrics,
		},
		Log: b.Log.Named("csi"),
	}
	if cl := b.Cluster; cl != nil {
		cfg.CSI.Cluster, cfg.Claims = cl.Storage, cl.Claims
		if cl.Tokens != nil {
			cfg.CSI.Tokens = cl.Tokens
		}
	}
	p, err := part.New(cfg)
	if err != nil {
		return nil, err
	}
	f.VolumePlugins = append(f.VolumePlugins, p.Plugin())
	f.StorageReady, f.Attached = p.Manager().Ready, p.Manager().VolumesInUse
	f.HandlePlugins(nodeagent.PluginKind{Type: pluginmgr.CSIPlugin, Handler: p.Registrar()})
	return p, nil
}

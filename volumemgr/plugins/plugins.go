// Package plugins has all plugins of this module in one list, and fits package
// mount to what a volume manager wants of it.
//
//	list, err := plugins.New(plugins.Config{Mounter: &mount.Kernel{}, Root: "/var/lib/agent", Source: objects})
//	if err != nil {
//		return err
//	}
//	m, err := volumemgr.New(volumemgr.Config{Plugins: list, Mounter: plugins.Mounter(&mount.Kernel{}), ...})
//
// Who wants fewer takes the packages that he wants.
package plugins

import (
	"errors"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/content"
	"github.com/nodewright/nodewright/volumemgr/emptydir"
	"github.com/nodewright/nodewright/volumemgr/fc"
	"github.com/nodewright/nodewright/volumemgr/hostpath"
	"github.com/nodewright/nodewright/volumemgr/imagevolume"
	"github.com/nodewright/nodewright/volumemgr/iscsi"
	"github.com/nodewright/nodewright/volumemgr/local"
	"github.com/nodewright/nodewright/volumemgr/mount"
	"github.com/nodewright/nodewright/volumemgr/nfs"
)

// Config holds what the plugins need. Mounter and Root are required; without
// one of the others, the volumes that need it have an error.
type Config struct {
	Mounter mount.Mounter
	// Root is the agent's directory.
	Root         string
	Source       content.Source
	Tokens       content.Tokens
	Bundles      content.Bundles
	Certificates content.Certificates
	// Allocatable is what the node has for pods.
	Allocatable func() v1.ResourceList
	// Quota, if not nil, is for emptyDir volumes.
	Quota emptydir.Quota
}

// New makes every plugin.
func New(cfg Config) ([]volumemgr.Plugin, error) {
	memory := func() int64 {
		if cfg.Allocatable == nil {
			return 0
		}
		has := cfg.Allocatable()
		return has.Memory().Value()
	}
	out := []volumemgr.Plugin{hostpath.New(), imagevolume.New()}
	var errs []error
	add := func(p volumemgr.Plugin, err error) {
		out, errs = append(out, p), append(errs, err)
	}
	e, err := emptydir.New(emptydir.Config{Mounter: cfg.Mounter, Allocatable: memory, Quota: cfg.Quota})
	add(e, err)
	for _, kind := range []content.Kind{content.ConfigMap, content.Secret, content.DownwardAPI, content.Projected} {
		c, err := content.New(kind, content.Config{
			Mounter: cfg.Mounter, Source: cfg.Source, Tokens: cfg.Tokens, Bundles: cfg.Bundles,
			Certificates: cfg.Certificates, Allocatable: cfg.Allocatable,
		})
		add(c, err)
	}
	l, err := local.New(local.Config{Mounter: cfg.Mounter, Root: cfg.Root})
	add(l, err)
	n, err := nfs.New(nfs.Config{Mounter: cfg.Mounter})
	add(n, err)
	i, err := iscsi.New(iscsi.Config{Mounter: cfg.Mounter, Root: cfg.Root, Source: cfg.Source})
	add(i, err)
	f, err := fc.New(fc.Config{Mounter: cfg.Mounter, Root: cfg.Root})
	add(f, err)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return out, nil
}

package plugins

import (
	"errors"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/volumemgr"

	"github.com/nodewright/nodewright/volumemgr/mount"
)

// Config configures the plugins. Mounter and Root are required. If another field is missing,
// volumes that need it fail.
type Config struct {
	Mounter mount.Mounter
	// Root is the agent's directory.
	Root         string
	Source       ContentSource
	Tokens       Tokens
	Bundles      Bundles
	Certificates Certificates
	// Allocatable returns the node's allocatable resources.
	Allocatable func() v1.ResourceList
	// BootID identifies the boot of the machine. The default is the kernel's boot ID.
	BootID string
	// Projects has the kernel count emptyDir volumes of pods with a user namespace, by project
	// quotas, where the file system has them (ext4 and XFS, Linux 5.14).
	Projects bool
}

// New returns all plugins.
func New(cfg Config) ([]volumemgr.Plugin, error) {
	memory := func() int64 {
		if cfg.Allocatable == nil {
			return 0
		}
		has := cfg.Allocatable()
		return has.Memory().Value()
	}
	out := []volumemgr.Plugin{newHostPath(), newImage()}
	var errs []error
	add := func(p volumemgr.Plugin, err error) {
		out, errs = append(out, p), append(errs, err)
	}
	e, err := newEmptyDir(emptyDirConfig{Mounter: cfg.Mounter, Allocatable: memory, Projects: cfg.Projects})
	add(e, err)
	for _, kind := range []ContentKind{ContentConfigMap, ContentSecret, contentDownwardAPI, ContentProjected} {
		c, err := NewContent(kind, ContentConfig{
			Mounter: cfg.Mounter, Source: cfg.Source, Tokens: cfg.Tokens, Bundles: cfg.Bundles,
			Certificates: cfg.Certificates, Allocatable: cfg.Allocatable, BootID: cfg.BootID,
		})
		add(c, err)
	}
	l, err := newLocal(localPluginConfig{Mounter: cfg.Mounter, Root: cfg.Root})
	add(l, err)
	n, err := newNFS(nfsConfig{Mounter: cfg.Mounter})
	add(n, err)
	i, err := newISCSI(iscsiConfig{Mounter: cfg.Mounter, Root: cfg.Root, Source: cfg.Source})
	add(i, err)
	f, err := newFC(fcConfig{Mounter: cfg.Mounter, Root: cfg.Root})
	add(f, err)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return out, nil
}

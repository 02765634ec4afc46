package plugins

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/diskusage"
	"github.com/nodewright/nodewright/internal/fsgroup"
	"github.com/nodewright/nodewright/internal/rmtree"
	"github.com/nodewright/nodewright/internal/scratch"
	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/mount"
)

// name is the kubelet's name of the plugin.
const name = "kubernetes.io/empty-dir"

// marker is the file that marks a volume as complete.
const marker = "ready"

// emptyDirConfig configures an emptyDirPlugin. Mounter is required.
type emptyDirConfig struct {
	Mounter mount.Mounter
	// Allocatable returns the node's allocatable memory in bytes, or 0 if it is not known. If
	// Allocatable is nil, it is not known either.
	Allocatable func() int64
	// Projects has the kernel count volumes on disk by project quotas, where the file system has
	// them, if the pod has a user namespace: processes of other pods can change the project of their
	// files (the kubelet's rule).
	Projects bool
	// NoSwap says whether tmpfs supports the option noswap; nil detects it.
	NoSwap *bool
}

// emptyDirPlugin implements emptyDir volumes: a directory that exists as long as the pod, on the
// node's disk, in its memory (tmpfs) or in its huge pages (hugetlbfs).
//
//	p, err := newEmptyDir(emptyDirConfig{
//		Mounter:     &mount.Kernel{},
//		Allocatable: func() int64 { return memoryOfNode },
//	})
//	if err != nil {
//		return err
//	}
//	// p is a volumemgr.Plugin
//
// The size of a volume in memory is the smallest of the node's allocatable memory, the pod's
// memory limit and the sizeLimit. Its memory is not swapped if the kernel supports that. A volume
// on disk has no limit; the eviction manager enforces its sizeLimit.
//
// # Faults
//
// A marker in the volume's state directory says that the volume is complete. A complete volume is
// never changed. An incomplete one is completed, and keeps its content. After a restart of the
// machine, a volume in memory is mounted again, empty. Removal stops at mount points: a mount
// that containers created below the volume is neither removed nor entered.
type emptyDirPlugin struct{ cfg emptyDirConfig }

// newEmptyDir checks cfg.
func newEmptyDir(cfg emptyDirConfig) (*emptyDirPlugin, error) {
	if cfg.Mounter == nil {
		return nil, errors.New("emptydir: EmptyDirConfig.Mounter is required")
	}
	return &emptyDirPlugin{cfg: cfg}, nil
}

// Name returns "kubernetes.io/empty-dir".
func (*emptyDirPlugin) Name() string { return name }

// Supports reports whether spec is an emptyDir.
func (*emptyDirPlugin) Supports(spec *volumemgr.Spec) bool {
	return spec.Volume != nil && spec.Volume.EmptyDir != nil
}

// SetUp creates the volume.
func (p *emptyDirPlugin) SetUp(ctx context.Context, v *volumemgr.Volume) (volumemgr.Result, error) {
	return volumemgr.Result{Path: v.Path}, p.setUp(ctx, v)
}

func (p *emptyDirPlugin) setUp(ctx context.Context, v *volumemgr.Volume) error {
	medium := v.Spec.Volume.EmptyDir.Medium
	fsys, same, err := p.fileSystem(v, medium)
	if err != nil {
		return err
	}
	if err := p.complete(ctx, v, fsys, same); err != nil {
		// The content is kept for the next attempt, or for TearDown.
		return errors.Join(err, volumemgr.ErrUncertain)
	}
	return nil
}

// complete creates the missing parts of the volume.
func (p *emptyDirPlugin) complete(ctx context.Context, v *volumemgr.Volume, fsys *mount.FileSystem, same func(mount.Entry) error) error {
	ready, err := p.ready(v)
	if err != nil {
		return err
	}
	if err := scratch.Dir(v.Path); err != nil {
		return err
	}
	if fsys != nil {
		mounted, err := mount.Find(ctx, p.cfg.Mounter, v.Path)
		if err != nil {
			return err
		}
		// After a restart of the machine, the marker exists but the mount does not.
		ready = ready && len(mounted) > 0
		if err := scratch.Mount(ctx, p.cfg.Mounter, *fsys, same); err != nil {
			return err
		}
	}
	if ready {
		return nil
	}
	if fsys == nil && p.cfg.Projects && v.Pod.Spec.HostUsers != nil && !*v.Pod.Spec.HostUsers {
		if err := os.MkdirAll(v.StateDir, 0o750); err != nil {
			return err
		}
		_ = diskusage.Assign(v.Path, v.StateDir) // otherwise the volume is walked
	}
	if err := scratch.Open(v.Path); err != nil {
		return err
	}
	if v.FSGroup != nil {
		if err := fsgroup.Apply(ctx, fsgroup.Request{Root: v.Path, GID: *v.FSGroup}); err != nil {
			return err
		}
	}
	return p.mark(v)
}

// ready reports whether the volume is complete. A marker without the volume's directory is
// outdated, and is removed.
func (*emptyDirPlugin) ready(v *volumemgr.Volume) (bool, error) {
	file := filepath.Join(v.StateDir, marker)
	if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	if _, err := os.Lstat(v.Path); !errors.Is(err, fs.ErrNotExist) {
		return err == nil, err
	}
	return false, os.Remove(file)
}

func (*emptyDirPlugin) mark(v *volumemgr.Volume) error {
	if err := os.MkdirAll(v.StateDir, 0o750); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(v.StateDir, marker), os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	return f.Close()
}

// fileSystem returns the file system to mount for a medium. It returns nil for the disk. same
// returns an error if an existing mount cannot be used.
func (p *emptyDirPlugin) fileSystem(v *volumemgr.Volume, medium v1.StorageMedium) (*mount.FileSystem, func(mount.Entry) error, error) {
	switch {
	case medium == v1.StorageMediumDefault:
		return nil, nil, nil
	case medium == v1.StorageMediumMemory:
		f := &mount.FileSystem{Type: "tmpfs", Source: "tmpfs", Target: v.Path}
		var allocatable int64
		if p.cfg.Allocatable != nil {
			allocatable = p.cfg.Allocatable()
		}
		if size := memorySize(allocatable, v.Pod, v.Spec.Volume.EmptyDir.SizeLimit); size > 0 {
			f.Options = append(f.Options, "size="+strconv.FormatInt(size, 10))
		}
		if noswap := p.cfg.NoSwap; noswap != nil && *noswap || noswap == nil && scratch.NoSwap() {
			f.Options = append(f.Options, "noswap")
		}
		return f, nil, nil
	case medium == v1.StorageMediumHugePages, strings.HasPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix)):
		size, err := pageSize(medium, v.Pod)
		if err != nil {
			return nil, nil, err
		}
		f := &mount.FileSystem{Type: "hugetlbfs", Source: "nodev", Target: v.Path, Options: []string{"pagesize=" + size.String()}}
		return f, func(e mount.Entry) error { return samePageSize(e, size) }, nil
	}
	return nil, nil, fmt.Errorf("emptyDir.medium %q, want \"\", Memory, HugePages or HugePages-SIZE", medium)
}

// TearDown removes the volume with its content.
func (p *emptyDirPlugin) TearDown(ctx context.Context, v *volumemgr.Volume) error {
	if err := scratch.Remove(ctx, p.cfg.Mounter, v.Path); err != nil {
		return err
	}
	return rmtree.Remove(v.StateDir)
}

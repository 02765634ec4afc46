package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/mount"
)

// name is the kubelet's, and escaped the same in paths.
const (
	name    = "kubernetes.io/local-volume"
	escaped = "kubernetes.io~local-volume"
)

// Config holds what a Plugin needs. Mounter and Root are required.
type Config struct {
	Mounter mount.Mounter
	// Root is the agent's directory; devices are mounted below it.
	Root string
	// Run runs mkfs, blkid and fsck; nil runs them.
	Run Run
	// Loops hold block devices that pods have; nil are the kernel's.
	Loops Loops
}

// Plugin makes local volumes.
type Plugin struct {
	cfg Config

	mu    sync.Mutex
	paths map[string]*pathLock
}

// pathLock keeps pods with the same volume apart.
type pathLock struct {
	mu    sync.Mutex
	users int
}

// New checks cfg.
func New(cfg Config) (*Plugin, error) {
	var errs []error
	if cfg.Mounter == nil {
		errs = append(errs, errors.New("local: Config.Mounter is required"))
	}
	if !filepath.IsAbs(cfg.Root) {
		errs = append(errs, fmt.Errorf("local: Config.Root %q, want an absolute path", cfg.Root))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if cfg.Run == nil {
		cfg.Run = run
	}
	if cfg.Loops == nil {
		cfg.Loops = newLoops()
	}
	return &Plugin{cfg: cfg, paths: make(map[string]*pathLock)}, nil
}

// lock locks a path until the returned function is called.
func (p *Plugin) lock(path string) (unlock func()) {
	p.mu.Lock()
	l := p.paths[path]
	if l == nil {
		l = &pathLock{}
		p.paths[path] = l
	}
	l.users++
	p.mu.Unlock()
	l.mu.Lock()
	return func() {
		l.mu.Unlock()
		p.mu.Lock()
		defer p.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(p.paths, path)
		}
	}
}

// Name is "kubernetes.io/local-volume".
func (*Plugin) Name() string { return name }

// Supports tells whether spec is a local volume.
func (*Plugin) Supports(spec *volumemgr.Spec) bool {
	return spec.PersistentVolume != nil && spec.PersistentVolume.Spec.Local != nil
}

// kindOf looks at the volume's path: a directory or a block device.
func kindOf(l *v1.LocalVolumeSource) (device bool, err error) {
	if !filepath.IsAbs(l.Path) || slices.Contains(strings.Split(l.Path, "/"), "..") || strings.ContainsRune(l.Path, 0) {
		return false, fmt.Errorf("local.path %q, want an absolute path without the element \"..\"", l.Path)
	}
	info, err := os.Stat(l.Path)
	if err != nil {
		return false, fmt.Errorf("local.path: %w", err)
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		return false, nil
	case mode&fs.ModeDevice != 0 && mode&fs.ModeCharDevice == 0:
		return true, nil
	}
	return false, fmt.Errorf("local.path %q is neither a directory nor a block device", l.Path)
}

func options(spec *volumemgr.Spec) []string {
	pv := spec.PersistentVolume
	return mount.Join(mount.OptionsOf(pv.Annotations, pv.Spec.MountOptions))
}

// SetUp binds the volume into the pod's directory.
func (p *Plugin) SetUp(ctx context.Context, v *volumemgr.Volume) (_ volumemgr.Result, err error) {
	l := v.Spec.PersistentVolume.Spec.Local
	device, err := kindOf(l)
	if err != nil {
		return volumemgr.Result{}, err
	}
	from := l.Path
	if device {
		if from = v.DevicePath; from == "" {
			return volumemgr.Result{}, fmt.Errorf("local.path %q is a block device that is not mounted", l.Path)
		}
	}
	defer p.lock(from)()
	result := volumemgr.Result{Path: v.Path, ReadOnly: v.Spec.ReadOnly}
	found, err := mount.Find(ctx, p.cfg.Mounter, v.Path)
	if err != nil {
		return volumemgr.Result{}, err
	}
	if len(found) > 0 && v.Remount {
		return result, nil
	}
	if len(found) == 0 {
		if err := os.MkdirAll(v.Path, 0o750); err != nil {
			return volumemgr.Result{}, err
		}
		var more []string
		if !device {
			more = options(v.Spec) // those of a device are the file system's
		}
		b := mount.Bind{Source: from, Target: v.Path, ReadOnly: v.Spec.ReadOnly, Options: more}
		err = p.cfg.Mounter.Bind(ctx, b)
	}
	if err == nil {
		err = p.own(ctx, v)
	}
	if err == nil || v.Found && len(found) > 0 {
		return result, err
	}
	if cerr := mount.Clean(context.WithoutCancel(ctx), p.cfg.Mounter, v.Path, mount.Plain); cerr != nil {
		err = errors.Join(err, cerr, volumemgr.ErrUncertain)
	}
	return volumemgr.Result{}, err
}

// TearDown unmounts the volume.
func (p *Plugin) TearDown(ctx context.Context, v *volumemgr.Volume) error {
	return mount.Clean(ctx, p.cfg.Mounter, v.Path, mount.Plain)
}

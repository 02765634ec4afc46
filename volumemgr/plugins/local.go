package plugins

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
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/internal/disk"
	"github.com/nodewright/nodewright/volumemgr/mount"
)

// localName is the kubelet's name of the plugin; escaped is the same name in paths.
const (
	localName = "kubernetes.io/local-volume"
	escaped   = "kubernetes.io~local-volume"
)

// Run runs a program. It returns its output, including standard error, and its exit code. err is
// not nil if the program did not run to its end.
type Run = func(ctx context.Context, program string, args ...string) (output string, exit int, err error)

// localPluginConfig configures a localPlugin. Mounter and Root are required.
type localPluginConfig struct {
	Mounter mount.Mounter
	// Root is the agent's directory; devices are mounted below it.
	Root string
	// Run executes mkfs, blkid and fsck. If it is nil, os/exec does.
	Run Run
	// Loops attaches loop devices to the block devices of pods. If it is nil, the kernel's loop
	// devices are used.
	Loops loopDevices
}

// lookTime limits how long Device waits for a path.
const lookTime = 10 * time.Second

// localPlugin implements local persistent volumes: disks and directories of this node.
//
//	p, err := newLocal(localPluginConfig{Mounter: &mount.Kernel{}, Root: "/var/lib/agent"})
//	if err != nil {
//		return err
//	}
//	// p is a volumemgr.Plugin, DevicePlugin and BlockPlugin
//
// A directory is bind-mounted into the pod's directory. A block device with volumeMode Block is
// passed to the pod as it is. With volumeMode Filesystem it is formatted if it is empty, checked,
// mounted once below Root/plugins, and bind-mounted from there.
//
// The first pod decides the group of the files. While it has the volume mounted, a different
// fsGroup of another pod only causes an event.
//
// # Faults
//
// A failed set-up unmounts its own mount. A device that has another file system than the
// requested one is an error (disk.ErrMismatch). Such a device, or one with unknown content, is
// never formatted.
type localPlugin struct {
	cfg   localPluginConfig
	stat  func(path string) (fs.FileInfo, error) // os.Stat
	links func(path string) (string, error)      // filepath.EvalSymlinks
	looks detached.Group[fs.FileInfo]
	// follows are running calls that resolve links. loops are running calls that attach and
	// detach loop devices. There is one call at a time for each file.
	follows detached.Group[string]
	loops   detached.Queue

	mu    sync.Mutex
	paths map[string]*pathLock
}

// pathLock is a lock on the path of a volume, so that set-ups for several pods do not overlap.
type pathLock struct {
	held  chan struct{} // capacity 1; has one element while the lock is held
	users int
}

// newLocal validates cfg and returns the plugin.
func newLocal(cfg localPluginConfig) (*localPlugin, error) {
	var errs []error
	if cfg.Mounter == nil {
		errs = append(errs, errors.New("local: LocalConfig.Mounter is required"))
	}
	if !filepath.IsAbs(cfg.Root) {
		errs = append(errs, fmt.Errorf("local: LocalConfig.Root %q, want an absolute path", cfg.Root))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if cfg.Run == nil {
		cfg.Run = disk.Program
	}
	if cfg.Loops == nil {
		cfg.Loops = kernelLoops{}
	}
	return &localPlugin{
		cfg: cfg, stat: os.Stat, links: filepath.EvalSymlinks,
		looks: detached.Group[fs.FileInfo]{Limit: maxHung}, follows: detached.Group[string]{Limit: maxHung}, loops: detached.Queue{Limit: maxHung},
		paths: make(map[string]*pathLock),
	}, nil
}

// lock locks a path. The returned function unlocks it. If ctx ends while another pod holds the
// lock, the error is the cause of ctx's end.
func (p *localPlugin) lock(ctx context.Context, path string) (unlock func(), err error) {
	p.mu.Lock()
	l := p.paths[path]
	if l == nil {
		l = &pathLock{held: make(chan struct{}, 1)}
		p.paths[path] = l
	}
	l.users++
	p.mu.Unlock()
	leave := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(p.paths, path)
		}
	}
	select {
	case l.held <- struct{}{}:
		return func() {
			<-l.held
			leave()
		}, nil
	case <-ctx.Done():
		leave()
		return nil, fmt.Errorf("wait for another pod with %s: %w", path, context.Cause(ctx))
	}
}

// Name returns "kubernetes.io/local-volume".
func (*localPlugin) Name() string { return localName }

// Supports reports whether spec is a local volume.
func (*localPlugin) Supports(spec *volumemgr.Spec) bool {
	return spec.PersistentVolume != nil && spec.PersistentVolume.Spec.Local != nil
}

// look is os.Stat with a timeout, for a path on a server that may not answer.
func (p *localPlugin) look(ctx context.Context, path string) (fs.FileInfo, error) {
	return p.looks.Do(ctx, path, func() (fs.FileInfo, error) { return p.stat(path) })
}

// resolve is filepath.EvalSymlinks with a timeout.
func (p *localPlugin) resolve(ctx context.Context, path string) (string, error) {
	return p.follows.Do(ctx, path, func() (string, error) { return p.links(path) })
}

// kindOf reports whether the volume's path is a block device. If not, it is a directory.
func (p *localPlugin) kindOf(ctx context.Context, l *v1.LocalVolumeSource) (device bool, err error) {
	if !filepath.IsAbs(l.Path) || slices.Contains(strings.Split(l.Path, "/"), "..") || strings.ContainsRune(l.Path, 0) {
		return false, fmt.Errorf("local.path %q, want an absolute path without the element \"..\"", l.Path)
	}
	info, err := p.look(ctx, l.Path)
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

// SetUp bind-mounts the volume into the pod's directory.
func (p *localPlugin) SetUp(ctx context.Context, v *volumemgr.Volume) (_ volumemgr.Result, err error) {
	l := v.Spec.PersistentVolume.Spec.Local
	device, err := p.kindOf(ctx, l)
	if err != nil {
		return volumemgr.Result{}, err
	}
	from := l.Path
	if device {
		if from = v.DevicePath; from == "" {
			return volumemgr.Result{}, fmt.Errorf("local.path %q is a block device that is not mounted", l.Path)
		}
	}
	unlock, err := p.lock(ctx, from)
	if err != nil {
		return volumemgr.Result{}, err
	}
	defer unlock()
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
			more = options(v.Spec) // for a device, they are options of its file system
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
func (p *localPlugin) TearDown(ctx context.Context, v *volumemgr.Volume) error {
	return mount.Clean(ctx, p.cfg.Mounter, v.Path, mount.Plain)
}

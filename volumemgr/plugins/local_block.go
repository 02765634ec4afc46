package plugins

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/mount"
)

// loopDevices keep a block device from being removed while a pod has it: a loop
// device on top holds it open, also while no agent runs.
type loopDevices interface {
	// Attach attaches a loop device to a file, unless there is one. It returns
	// errors.ErrUnsupported without loop devices. It may block on the device
	// without limit.
	Attach(file string, readOnly bool) error
	// Detach detaches every loop device from the file.
	Detach(file string) error
}

// devicesDir returns the directory with files for pods' block devices: a directory
// for each volume, with a file for each pod.
func (p *localPlugin) devicesDir() string {
	return filepath.Join(p.cfg.Root, "plugins", escaped, "volumeDevices")
}

// blockPrefix distinguishes devices of volumeMode Block from those with file systems.
const blockPrefix = "block/"

// blockDevice returns the device that all pods with a volume of volumeMode Block
// share.
func (p *localPlugin) blockDevice(volume string) volumemgr.Device {
	return volumemgr.Device{Name: blockPrefix + volume, Path: filepath.Join(p.devicesDir(), volume)}
}

// isBlock reports whether a volume is a block device, without a spec by its path.
func isBlock(v *volumemgr.Volume) bool {
	if v.Spec != nil {
		return v.Spec.Block()
	}
	return filepath.Base(filepath.Dir(filepath.Dir(v.Path))) == "volumeDevices"
}

// podFile returns the path of the file to which the device is bound for one pod.
func (p *localPlugin) podFile(v *volumemgr.Volume) string {
	return filepath.Join(p.devicesDir(), v.Name, string(v.UID))
}

// MapDevice returns the block device, after binding it to a file of the pod and
// attaching a loop device to that file.
func (p *localPlugin) MapDevice(ctx context.Context, v *volumemgr.Volume) (string, error) {
	l := v.Spec.PersistentVolume.Spec.Local
	device, err := p.kindOf(ctx, l)
	if err != nil {
		return "", err
	}
	if !device {
		return "", fmt.Errorf("local.path %q is a directory, volumeMode Block wants a block device", l.Path)
	}
	path, err := p.resolve(ctx, l.Path)
	if err != nil {
		return "", fmt.Errorf("local.path: %w", err)
	}
	unlock, err := p.lock(ctx, l.Path)
	if err != nil {
		return "", err
	}
	defer unlock()
	file := p.podFile(v)
	if err := p.bindDevice(ctx, path, file); err != nil {
		return "", p.undo(ctx, file, err)
	}
	readOnly := v.Spec.ReadOnly
	err = p.onLoops(ctx, file, func() error { return p.cfg.Loops.Attach(file, readOnly) })
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return "", p.undo(ctx, file, fmt.Errorf("hold %s: %w", path, err))
	}
	return path, nil
}

// bindDevice bind-mounts a device on a file, in place of another device there.
func (p *localPlugin) bindDevice(ctx context.Context, device, file string) error {
	found, err := mount.Find(ctx, p.cfg.Mounter, file)
	if err != nil {
		return err
	}
	if len(found) > 0 {
		if same, err := p.sameFile(ctx, device, file); err != nil || same {
			return err
		}
		if err := p.release(ctx, file); err != nil { // another disk has the path now
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return p.cfg.Mounter.Bind(ctx, mount.Bind{Source: device, Target: file})
}

func (p *localPlugin) sameFile(ctx context.Context, a, b string) (bool, error) {
	x, err := p.look(ctx, a)
	if err != nil {
		return false, err
	}
	y, err := p.look(ctx, b)
	if err != nil {
		return false, err
	}
	return os.SameFile(x, y), nil
}

// onLoops makes a call for the loop device of a file, after earlier calls for that file
// have ended. It waits until ctx ends: a call may block on the device for ever.
func (p *localPlugin) onLoops(ctx context.Context, file string, call func() error) error {
	_, err := detached.Next(ctx, &p.loops, file, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

// undoTime is the timeout of undo. It does not use the pod's ctx, which may have ended.
const undoTime = 30 * time.Second

// undo removes the parts of a failed mapping.
func (p *localPlugin) undo(ctx context.Context, file string, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	if err := p.release(ctx, file); err != nil {
		return errors.Join(cause, err, volumemgr.ErrUncertain)
	}
	return cause
}

// release releases a device: the loop device, the mount, the file.
func (p *localPlugin) release(ctx context.Context, file string) error {
	if err := p.onLoops(ctx, file, func() error { return p.cfg.Loops.Detach(file) }); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("let go of %s: %w", file, err)
	}
	return mount.Clean(ctx, p.cfg.Mounter, file, mount.Plain)
}

// UnmapDevice releases the device for the pod.
func (p *localPlugin) UnmapDevice(ctx context.Context, v *volumemgr.Volume) error {
	return p.release(ctx, p.podFile(v))
}

// unmapLeft releases devices of a process that ended between creating a pod's file
// and its link: no pod has the volume any more.
func (p *localPlugin) unmapLeft(ctx context.Context, d volumemgr.Device) error {
	entries, err := os.ReadDir(d.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		errs = append(errs, p.release(ctx, filepath.Join(d.Path, e.Name())))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.Remove(d.Path)
}

// mappedDevices lists the volumes that pods have, or had, as block devices.
func (p *localPlugin) mappedDevices() ([]volumemgr.Device, error) {
	entries, err := os.ReadDir(p.devicesDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var out []volumemgr.Device
	for _, e := range entries {
		out = append(out, p.blockDevice(e.Name()))
	}
	return out, err
}

func isMapped(d volumemgr.Device) bool { return strings.HasPrefix(d.Name, blockPrefix) }

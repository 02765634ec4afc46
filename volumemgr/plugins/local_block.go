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

// loopDevices prevent a block device from being removed while a pod uses it: a loop device on top
// keeps it open, even while no agent runs.
type loopDevices interface {
	// Attach attaches a loop device to a file, unless it has one. It returns
	// errors.ErrUnsupported if there are no loop devices. It may block on the device without
	// limit.
	Attach(file string, readOnly bool) error
	// Detach detaches every loop device from the file.
	Detach(file string) error
}

// devicesDir returns the directory of the files for pods' block devices: a directory for each
// volume, with a file for each pod.
func (p *localPlugin) devicesDir() string {
	return filepath.Join(p.cfg.Root, "plugins", escaped, "volumeDevices")
}

// blockPrefix is the prefix of device names for volumeMode Block, so that they differ from those
// for file systems.
const blockPrefix = "block/"

// blockDevice returns the device that all pods with a volume of volumeMode Block share.
func (p *localPlugin) blockDevice(volume string) volumemgr.Device {
	return volumemgr.Device{Name: blockPrefix + volume, Path: filepath.Join(p.devicesDir(), volume)}
}

// isBlock reports whether a volume is a block device. Without a spec, the volume's path decides.
func isBlock(v *volumemgr.Volume) bool {
	if v.Spec != nil {
		return v.Spec.Block()
	}
	return filepath.Base(filepath.Dir(filepath.Dir(v.Path))) == "volumeDevices"
}

// podFile returns the path of the file on which the device is bind-mounted for one pod.
func (p *localPlugin) podFile(v *volumemgr.Volume) string {
	return filepath.Join(p.devicesDir(), v.Name, string(v.UID))
}

// MapDevice returns the block device. It has bind-mounted the device on a file of the pod and
// attached a loop device to that file.
func (p *localPlugin) MapDevice(ctx context.Context, v *volumemgr.Volume) (string, error) {
	l := v.Spec.PersistentVolume.Spec.Local
	device, err := p.kindOf(ctx, l)
	if err != nil {
		return "", err
	}
	if !device {
		return "", fmt.Errorf("local.path %q is a directory; volumeMode Block needs a block device", l.Path)
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
		return "", p.undo(ctx, file, fmt.Errorf("attach a loop device to %s: %w", path, err))
	}
	return path, nil
}

// bindDevice bind-mounts a device on a file. It replaces the mount of another device there.
func (p *localPlugin) bindDevice(ctx context.Context, device, file string) error {
	found, err := mount.Find(ctx, p.cfg.Mounter, file)
	if err != nil {
		return err
	}
	if len(found) > 0 {
		if same, err := p.sameFile(ctx, device, file); err != nil || same {
			return err
		}
		if err := p.release(ctx, file); err != nil { // the path is another disk now
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

// onLoops calls call, which works on the loop device of a file, once earlier calls for that file
// have returned. It waits until ctx ends, since a call may block forever.
func (p *localPlugin) onLoops(ctx context.Context, file string, call func() error) error {
	_, err := detached.Next(ctx, &p.loops, file, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

// undoTime limits undo. undo does not use the caller's ctx, which may have ended.
const undoTime = 30 * time.Second

// undo removes what a failed mapping left.
func (p *localPlugin) undo(ctx context.Context, file string, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	if err := p.release(ctx, file); err != nil {
		return errors.Join(cause, err, volumemgr.ErrUncertain)
	}
	return cause
}

// release removes the loop device, the mount and the file of a device.
func (p *localPlugin) release(ctx context.Context, file string) error {
	if err := p.onLoops(ctx, file, func() error { return p.cfg.Loops.Detach(file) }); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("detach the loop device from %s: %w", file, err)
	}
	return mount.Clean(ctx, p.cfg.Mounter, file, mount.Plain)
}

// UnmapDevice releases the device for the pod.
func (p *localPlugin) UnmapDevice(ctx context.Context, v *volumemgr.Volume) error {
	return p.release(ctx, p.podFile(v))
}

// unmapLeft releases devices that no pod uses: the process ended after it created the pod's file
// and before it created the link.
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

// mappedDevices returns the devices that pods use, or used, as block devices.
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

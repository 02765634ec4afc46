package plugins

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/internal/disk"
	"github.com/nodewright/nodewright/volumemgr/mount"
)

// defaultType is the file system for a device whose volume names none, as in the kubelet.
const defaultType = "ext4"

// mountsDir returns the directory below which devices are mounted.
func (p *localPlugin) mountsDir() string {
	return filepath.Join(p.cfg.Root, "plugins", localName, "mounts")
}

// Device returns the volume's block device, if it has one. If only the volume's directory is
// known, the device follows from the mount there. If a path does not answer within ten seconds,
// Device returns an error.
func (p *localPlugin) Device(v *volumemgr.Volume) (volumemgr.Device, error) {
	if isBlock(v) {
		return p.blockDevice(v.Name), nil
	}
	d := volumemgr.Device{Name: v.Name, Path: filepath.Join(p.mountsDir(), v.Name)}
	if v.Spec == nil {
		if _, err := os.Lstat(d.Path); errors.Is(err, fs.ErrNotExist) {
			return volumemgr.Device{}, nil
		} else if err != nil {
			return volumemgr.Device{}, err
		}
		return d, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	device, err := p.kindOf(ctx, v.Spec.PersistentVolume.Spec.Local)
	if err != nil || !device {
		return volumemgr.Device{}, err
	}
	return d, nil
}

// Devices returns the devices that are mounted, or may be.
func (p *localPlugin) Devices(context.Context) ([]volumemgr.Device, error) {
	out, err := p.mappedDevices()
	entries, merr := os.ReadDir(p.mountsDir())
	if errors.Is(merr, fs.ErrNotExist) {
		merr = nil
	}
	for _, e := range entries {
		out = append(out, volumemgr.Device{Name: e.Name(), Path: filepath.Join(p.mountsDir(), e.Name())})
	}
	return out, errors.Join(err, merr)
}

// MountDevice prepares the device's file system and mounts it, unless it is mounted. With
// volumeMode Block it creates the directory for the pods' files.
func (p *localPlugin) MountDevice(ctx context.Context, v *volumemgr.Volume) error {
	if v.Spec.Block() {
		return os.MkdirAll(v.DevicePath, 0o750)
	}
	l := v.Spec.PersistentVolume.Spec.Local
	unlock, err := p.lock(ctx, l.Path)
	if err != nil {
		return err
	}
	defer unlock()
	found, err := mount.Find(ctx, p.cfg.Mounter, v.DevicePath)
	if err != nil || len(found) > 0 {
		return err
	}
	f := mount.FileSystem{Type: defaultType, Source: l.Path, Target: v.DevicePath, Options: options(v.Spec)}
	if l.FSType != nil && *l.FSType != "" {
		f.Type = *l.FSType
	}
	if v.Spec.ReadOnly {
		f.Options = mount.Join(f.Options, []string{"ro"})
	}
	if err := disk.Prepare(ctx, p.cfg.Run, f); err != nil {
		return err
	}
	if err := os.MkdirAll(v.DevicePath, 0o750); err != nil {
		return err
	}
	if err := p.cfg.Mounter.Mount(ctx, f); err != nil {
		if cerr := mount.Clean(context.WithoutCancel(ctx), p.cfg.Mounter, v.DevicePath, mount.Plain); cerr != nil {
			err = errors.Join(err, cerr, volumemgr.ErrUncertain)
		}
		return err
	}
	return nil
}

// UnmountDevice unmounts a device. It returns an error if a pod still uses it.
func (p *localPlugin) UnmountDevice(ctx context.Context, d volumemgr.Device) error {
	if isMapped(d) {
		return p.unmapLeft(ctx, d)
	}
	path, err := mount.Resolve(d.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	table, err := p.cfg.Mounter.Table(ctx)
	if err != nil {
		return err
	}
	if users := shared(table, path); len(users) > 0 {
		return fmt.Errorf("device %s is still mounted at %s", d.Name, users[0].Target)
	}
	return mount.Clean(ctx, p.cfg.Mounter, d.Path, mount.Plain)
}

package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/volumemgr"
)

// Staging: the mount below ROOT/plugins that all pods of a node with the volume share. The record
// is in the parent directory of the mount; for a block device it is in a directory beside it. The
// record is written before NodeStageVolume and removed after NodeUnstageVolume, so that every
// volume that a driver may have staged has one.

// Device returns the part of a persistent volume that pods share: its staging path, if the driver
// stages volumes. An inline volume has none. If the volume has no spec, Device reads the record.
// It calls no driver.
func (p Plugin) Device(v *volumemgr.Volume) (volumemgr.Device, error) {
	if v.Spec != nil {
		src, err := sourceOf(v.Spec, v.Pod, v.UID)
		if err != nil || src.ephemeral {
			return volumemgr.Device{}, err
		}
		return p.m.device(src, v.Name), nil
	}
	// An earlier process left the volume: only its path is known.
	dir, block := v.Path, isBlock(v)
	if block {
		dir = p.m.blockDir(v.Name, dataName)
	}
	rec, err := readRecord(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !block: // nothing has been published yet
		return volumemgr.Device{}, nil
	case block:
		if err == nil {
			p.m.use(unique(rec.Driver, rec.Handle), true)
		}
		return p.m.blockDeviceOf(v.Name), nil
	case err != nil:
		return volumemgr.Device{}, err
	case rec.Ephemeral:
		return volumemgr.Device{}, nil
	}
	// No controller may detach the volume before everything is unmounted.
	p.m.use(unique(rec.Driver, rec.Handle), true)
	return p.m.device(source{driver: rec.Driver, handle: rec.Handle}, v.Name), nil
}

// Limits for the number of directories that are read.
const (
	maxDrivers = 1024
	maxVolumes = 1 << 16
)

// Devices returns the volumes that may be staged: one for each directory, even if it is empty
// because a process ended too early. It is called once, at the start; UnmountDevice unmounts
// those that no pod uses. With an error, it returns the devices that could be read.
func (p Plugin) Devices(context.Context) ([]volumemgr.Device, error) {
	m := p.m
	names, err := list(m.dir(), maxDrivers)
	errs := []error{err}
	var out []volumemgr.Device
	for _, driver := range names {
		// Block devices have a directory beside those of the drivers. Other names are ignored.
		if driver == "volumeDevices" || checkDriver(driver) != nil {
			continue
		}
		volumes, err := list(m.dir(driver), maxVolumes)
		errs = append(errs, err)
		for _, sum := range volumes {
			rec, err := readRecord(m.dir(driver, sum))
			if err == nil {
				m.use(unique(rec.Driver, rec.Handle), true)
			}
			// The directory of a volume is named by the hash of its handle. Any other directory
			// must contain a record or a mount point to count as a volume.
			if err == nil || errors.Is(err, ErrRecord) || len(sum) == hashLength || exists(m.dir(driver, sum, globalName)) {
				out = append(out, volumemgr.Device{Name: driver + "/" + sum, Path: m.dir(driver, sum, globalName)})
			}
		}
	}
	blocks, err := list(m.blockDir(), maxVolumes)
	errs = append(errs, err)
	for _, name := range blocks {
		if name == "staging" || name == "publish" {
			continue
		}
		if rec, err := readRecord(m.blockDir(name, dataName)); err == nil {
			m.use(unique(rec.Driver, rec.Handle), true)
		}
		out = append(out, m.blockDeviceOf(name))
	}
	return out, errors.Join(errs...)
}

// list returns at most limit names in a directory. A missing directory has none.
func list(dir string, limit int) ([]string, error) {
	names, err := safefile.Names(dir, limit)
	return names, gone(err)
}

// exists reports whether a path exists. It reads the parent directory instead of the path itself,
// since a stat of a mounted file system could hang.
func exists(path string) bool {
	entries, err := safefile.Names(filepath.Dir(path), maxVolumes)
	if err != nil {
		return false
	}
	for _, name := range entries {
		if name == filepath.Base(path) {
			return true
		}
	}
	return false
}

// MountDevice waits until the volume is attached, if its driver requires that, and stages it, if
// its driver stages volumes. If the driver is not registered, it returns a transient error
// without waiting, so that the pod's event names the driver and not the attachment.
func (p Plugin) MountDevice(ctx context.Context, v *volumemgr.Volume) (err error) {
	m := p.m
	src, err := sourceOf(v.Spec, v.Pod, v.UID)
	if err != nil {
		return err
	}
	name := unique(src.driver, src.handle)
	dir, path := m.staging(src, v.Name)
	if src.block {
		m.mu.Lock()
		m.blocks[name] = blockDevice + v.Name
		m.mu.Unlock()
	}
	_, staged := readRecord(dir)
	defer func() {
		// UnmountDevice is not called for a volume that was certainly not staged.
		if err != nil && !errors.Is(err, volumemgr.ErrUncertain) && ctx.Err() == nil && !v.Found && errors.Is(staged, fs.ErrNotExist) {
			m.use(name, false)
		}
	}()
	object, err := m.object(ctx, src.driver)
	if err != nil {
		return err
	}
	if err := mayPublish(src, object); err != nil {
		return transient(err)
	}
	_, release, err := m.hold(src.driver)
	if err != nil {
		return transient(err)
	}
	release() // not held during a long wait; the driver that is registered afterwards is used
	attached, err := m.attached(ctx, v, src, object)
	if err != nil {
		return err
	}
	d, release, err := m.hold(src.driver)
	if err != nil {
		return transient(err)
	}
	defer release()
	// A block device has a record even if it is not staged, since its publications have no
	// records.
	if !d.can.stage && !src.block {
		return nil
	}
	secrets, err := m.secrets(ctx, src.stage, "nodeStageSecretRef")
	if err != nil {
		return transient(err)
	}
	// A context applies to the whole mount, so staging and publications need the same one.
	label := m.context(v, src, object)
	if err := m.write(dir, record{Handle: src.handle, Driver: src.driver, Context: label}); err != nil {
		return m.unstaged(ctx, dir, path, src.block, errors.Is(staged, fs.ErrNotExist) && !v.Found, err)
	}
	if !d.can.stage {
		return nil
	}
	if err := errors.Join(makeDir(path), m.cfg.step()); err != nil {
		return m.unstaged(ctx, dir, path, src.block, errors.Is(staged, fs.ErrNotExist) && !v.Found, err)
	}
	req := &spec.NodeStageVolumeRequest{
		VolumeId: src.handle, PublishContext: attached, StagingTargetPath: path, Secrets: secrets, VolumeContext: volumeContext(src, nil, false),
		VolumeCapability: src.capability(d.can, mountGroup(d.can, v), label),
	}
	err = m.call(ctx, d, src.handle, "NodeStageVolume", req, &spec.NodeStageVolumeResponse{}, secrets)
	if err == nil {
		return nil
	}
	// Nothing is staged if the driver returned a final error, or if neither this call nor an
	// earlier one was made.
	var answer *CallError
	nothing := errors.As(err, &answer) && answer.Final() || errors.Is(err, volumemgr.ErrTransient) && errors.Is(staged, fs.ErrNotExist)
	return m.unstaged(ctx, dir, path, src.block, nothing && !v.Found, err)
}

// staging returns the path at which a volume is staged, and the directory of its record. The path
// has the handle's hash for a file system, and the persistent volume's name for a block device.
func (m *Manager) staging(src source, name string) (dir, path string) {
	if src.block {
		return m.blockDir(name, dataName), m.blockDir("staging", name)
	}
	path = m.stagingDir(src.driver, src.handle)
	return filepath.Dir(path), path
}

// makeDir creates a directory. It may already be a mount point, so makeDir does not access a file
// system mounted there, which may hang.
func makeDir(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// unstaged cleans up after a failed staging and returns cause. If clean is true, the driver has
// staged nothing, and unstaged removes the directories. If the removal fails, the error is an
// ErrUncertain, so that UnmountDevice is called.
func (m *Manager) unstaged(ctx context.Context, dir, path string, block, clean bool, cause error) error {
	if !clean {
		return cause
	}
	if err := m.removeStaging(context.WithoutCancel(ctx), dir, path, block); err != nil {
		return errors.Join(cause, err, volumemgr.ErrUncertain)
	}
	return cause
}

// removeStaging removes the directories of an unstaged volume, first the mount point, then the
// record. The directories of a block device are removed when no pod uses it. A mount, or a
// directory that is not empty, is kept, and the error names it.
func (m *Manager) removeStaging(ctx context.Context, dir, path string, block bool) error {
	if err := m.removeTarget(ctx, path); err != nil {
		return err
	}
	if !block {
		return m.removeWithRecord(dir)
	}
	top := filepath.Dir(dir)
	for _, p := range []string{m.blockDir("publish", filepath.Base(top)), filepath.Join(top, devName)} {
		if err := m.remove(p); err != nil {
			return err
		}
	}
	if err := m.removeWithRecord(dir); err != nil {
		return err
	}
	return m.remove(top)
}

// UnmountDevice unstages the volume by its record. It returns an error while a pod has the volume
// mounted.
func (p Plugin) UnmountDevice(ctx context.Context, dev volumemgr.Device) error {
	m := p.m
	name, block := strings.CutPrefix(dev.Name, blockDevice)
	dir := filepath.Dir(dev.Path)
	if block {
		dir = m.blockDir(name, dataName)
		// Publications have to be removed before staging (CSI specification).
		if err := m.unmapLeft(ctx, name); err != nil {
			return err
		}
	}
	rec, err := readRecord(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist): // the driver was never called
		if err := m.removeStaging(ctx, dir, dev.Path, block); err != nil {
			return err
		}
		m.forget(dev)
		return nil
	case errors.Is(err, ErrRecord):
		if err := m.abandon(ctx, dir, dev.Path, err); err != nil {
			return err
		}
		if err := m.removeStaging(ctx, dir, dev.Path, block); err != nil {
			return err
		}
		m.forget(dev)
		return nil
	case err != nil:
		return err
	}
	// The kernel's mount table is checked, not the manager's memory, since a pod that is not
	// known may use the volume too.
	if used, err := m.users(ctx, dev.Path); err != nil {
		return err
	} else if len(used) > 0 {
		return fmt.Errorf("the volume is still mounted at %s", used[0])
	}
	d, release, err := m.hold(rec.Driver)
	if err != nil {
		return transient(err)
	}
	defer release()
	// Without the directory, the driver was never called, or has already unstaged the volume.
	if d.can.stage && exists(dev.Path) {
		req := &spec.NodeUnstageVolumeRequest{VolumeId: rec.Handle, StagingTargetPath: dev.Path}
		if err := m.call(ctx, d, rec.Handle, "NodeUnstageVolume", req, &spec.NodeUnstageVolumeResponse{}, nil); err != nil {
			return err
		}
	}
	if err := m.removeStaging(ctx, dir, dev.Path, block); err != nil {
		return err
	}
	m.use(unique(rec.Driver, rec.Handle), false)
	return nil
}

// forget removes from inUse a volume of which only the device is known, because the volume was
// never staged or its record is damaged. The handle is not known: forget compares the hash of the
// handle in the device's name for a file system, or the name that MountDevice stored for a block
// device.
func (m *Manager) forget(dev volumemgr.Device) {
	for _, name := range m.VolumesInUse() {
		driver, handle, ok := strings.Cut(strings.TrimPrefix(string(name), pluginName+"/"), "^")
		m.mu.Lock()
		block := m.blocks[name]
		m.mu.Unlock()
		if ok && driver+"/"+hash(handle) == dev.Name || block == dev.Name {
			m.use(name, false)
		}
	}
}

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

// Staging: the mount of a volume that the pods of a node share, below ROOT/plugins.
// Its record is in the directory above the mount; that of a block device is beside.
// The record is written before NodeStageVolume and removed after NodeUnstageVolume,
// so that every volume that a driver may have staged has one.

// Device returns the part of a persistent volume that pods share: its staging path,
// if the driver stages volumes. An inline volume has none. Without a spec it reads
// the record; it calls no driver.
func (p Plugin) Device(v *volumemgr.Volume) (volumemgr.Device, error) {
	if v.Spec != nil {
		src, err := sourceOf(v.Spec, v.Pod, v.UID)
		if err != nil || src.ephemeral {
			return volumemgr.Device{}, err
		}
		return p.m.device(src, v.Name), nil
	}
	// A volume of an earlier process: only its path is known.
	dir, block := v.Path, isBlock(v)
	if block {
		dir = p.m.blockDir(v.Name, dataName)
	}
	rec, err := readRecord(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !block: // nothing was published yet
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
	// Until all is taken down, no controller may detach it.
	p.m.use(unique(rec.Driver, rec.Handle), true)
	return p.m.device(source{driver: rec.Driver, handle: rec.Handle}, v.Name), nil
}

// Limits of the number of directories that are read.
const (
	maxDrivers = 1024
	maxVolumes = 1 << 16
)

// Devices returns the volumes that may be staged: one for each directory, also if
// it is empty because the process ended. It is called once, at the start;
// UnmountDevice unmounts those that no pod uses. With an error it returns the
// devices that could be read.
func (p Plugin) Devices(context.Context) ([]volumemgr.Device, error) {
	m := p.m
	names, err := list(m.dir(), maxDrivers)
	errs := []error{err}
	var out []volumemgr.Device
	for _, driver := range names {
		// Block devices have a directory beside those of the drivers; other names
		// are ignored.
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
			// Directories are named by the hash of a handle. Any other directory
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

// list returns the names in a directory, at most limit of them; none if it is
// missing.
func list(dir string, limit int) ([]string, error) {
	names, err := safefile.Names(dir, limit)
	return names, gone(err)
}

// exists reports whether a path exists, without accessing a file system mounted on
// it. It reads the directory above: a stat could hang.
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

// MountDevice waits until the volume is attached, if its driver requires that, and
// stages it, if the driver stages volumes. A driver that is not registered is a
// transient error even before the wait: the pod's event should name the driver and
// not the attachment.
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
	release() // the wait may be long; the driver that is registered then is used
	attached, err := m.attached(ctx, v, src, object)
	if err != nil {
		return err
	}
	d, release, err := m.hold(src.driver)
	if err != nil {
		return transient(err)
	}
	defer release()
	// A block device has a record even if it is not staged: its publications have no
	// records of their own.
	if !d.can.stage && !src.block {
		return nil
	}
	secrets, err := m.secrets(ctx, src.stage, "nodeStageSecretRef")
	if err != nil {
		return transient(err)
	}
	// A context is one of the whole mount, so staging needs it and the publications
	// as well.
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
	// Nothing is there if the driver has given up, or if the call was never made and
	// no earlier one had been.
	var answer *CallError
	nothing := errors.As(err, &answer) && answer.Final() || errors.Is(err, volumemgr.ErrTransient) && errors.Is(staged, fs.ErrNotExist)
	return m.unstaged(ctx, dir, path, src.block, nothing && !v.Found, err)
}

// staging is where a volume is staged, and the directory of its record. A file
// system's place is named by its handle, a block device's by its persistent volume.
func (m *Manager) staging(src source, name string) (dir, path string) {
	if src.block {
		return m.blockDir(name, dataName), m.blockDir("staging", name)
	}
	path = m.stagingDir(src.driver, src.handle)
	return filepath.Dir(path), path
}

// makeDir creates a directory that may already be a mount point: it does not access
// the file system mounted there, which may hang.
func makeDir(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// unstaged removes the directories of a failed staging if nothing is true: the
// driver has staged nothing. It returns cause. If the removal fails, the result is
// uncertain, so that UnmountDevice is called.
func (m *Manager) unstaged(ctx context.Context, dir, path string, block, nothing bool, cause error) error {
	if !nothing {
		return cause
	}
	if err := m.removeStaging(context.WithoutCancel(ctx), dir, path, block); err != nil {
		return errors.Join(cause, err, volumemgr.ErrUncertain)
	}
	return cause
}

// removeStaging removes the directories of an unstaged volume, the mount point
// first and the record after it. Those of a block device are removed when no pod
// uses it. It returns an error for a mount or a directory that is not empty, and
// keeps it.
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

// UnmountDevice unstages the volume by its record. It returns an error while a pod
// has it mounted.
func (p Plugin) UnmountDevice(ctx context.Context, dev volumemgr.Device) error {
	m := p.m
	name, block := strings.CutPrefix(dev.Name, blockDevice)
	dir := filepath.Dir(dev.Path)
	if block {
		dir = m.blockDir(name, dataName)
		// Publications go before staging (CSI specification).
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
	// The kernel's table and not the manager's memory: a mount of a pod that is not
	// known also uses the volume.
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
	// Without the directory the driver has never been called, or has answered
	// already.
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

// forget removes from inUse a volume of which only the device is known, because it
// was never staged or its record is damaged. The handle is not known either: the
// device of a file system has its hash, that of a block device the name that
// MountDevice stored.
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

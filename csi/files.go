package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/fsgroup"
	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/mount"
)

// Directories and mounts of volumes. Two rules apply. A mount is never removed here, and its file
// system is accessed only on a goroutine that nobody has to wait for. Nothing is removed
// recursively, since it could be user data.

// message is a request or an answer of a driver.
type message = proto.Message

// look is os.Lstat for a path that a driver has mounted. Lstat may never return, but look returns
// when ctx ends.
func (m *Manager) look(ctx context.Context, path string) (fs.FileInfo, error) {
	return m.looks.Do(ctx, path, func() (fs.FileInfo, error) { return os.Lstat(path) })
}

// published checks the path that a driver reports as published, since pods must not get a link in
// place of a directory. The error is an ErrUncertain, since the driver has changed something.
func (m *Manager) published(ctx context.Context, driver, target string) error {
	info, err := m.look(ctx, target)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s has mode %s; want a directory", target, info.Mode())
	}
	if err != nil {
		return fmt.Errorf("driver %s reports the volume as published: %w: %w", driver, err, volumemgr.ErrUncertain)
	}
	return nil
}

// mounted reports whether anything is mounted at path. It reads the mount table, never the
// mounted file system.
func (m *Manager) mounted(ctx context.Context, path string) (bool, error) {
	found, err := mount.Find(ctx, m.cfg.Mounter, path)
	if err != nil {
		return false, fmt.Errorf("read mount table: %w", err)
	}
	return len(found) > 0, nil
}

// removePublication removes the directory of a publication and its record, if nothing is mounted
// there and the directory has nothing else. The record is removed just before the directory,
// since only the record names the driver. Missing parts are not errors, so that a call can be
// repeated after a crash.
func (m *Manager) removePublication(ctx context.Context, dir string) error {
	if err := m.removeTarget(ctx, filepath.Join(dir, mountName)); err != nil {
		return err
	}
	return m.removeWithRecord(dir)
}

// removeTarget removes a driver's mount point, an empty directory or file. It fails if something
// is still mounted there although the driver reported success.
func (m *Manager) removeTarget(ctx context.Context, target string) error {
	if is, err := m.mounted(ctx, target); err != nil {
		return err
	} else if is {
		return fmt.Errorf("%s is still a mount point", target)
	}
	// If the driver mounted nothing, the pod may have written data to the directory below.
	if info, err := os.Lstat(target); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
		return fmt.Errorf("%s is a file of %d bytes; want an empty file or directory", target, info.Size())
	}
	return m.remove(target)
}

// removeWithRecord removes a record and its directory. If there is a file in place of the
// directory, it is removed too.
func (m *Manager) removeWithRecord(dir string) error {
	if err := m.cfg.step(); err != nil {
		return err
	}
	if err := removeRecord(dir); err != nil && !errors.Is(err, syscall.ENOTDIR) {
		return err
	}
	return m.remove(dir)
}

// remove removes a file or an empty directory. A missing file is not an error.
func (m *Manager) remove(path string) error {
	if err := m.cfg.step(); err != nil {
		return err
	}
	return errors.Join(gone(os.Remove(path)), m.cfg.step())
}

// write writes a record into a directory.
func (m *Manager) write(dir string, r record) error {
	if err := m.cfg.step(); err != nil {
		return err
	}
	return errors.Join(writeRecord(dir, r), m.cfg.step())
}

// gone returns nil if err means that the file does not exist, and otherwise err.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// abandon unmounts a volume whose record is damaged, without its driver. A power failure may
// damage a record of the kubelet, which overwrites it in place. The driver may keep state for the
// volume, but the pod does not have to wait until a person has repaired a file.
func (m *Manager) abandon(ctx context.Context, dir, target string, cause error) error {
	is, err := m.mounted(ctx, target)
	if err != nil {
		return errors.Join(cause, err)
	}
	if is {
		if err := mount.UnmountAll(ctx, m.cfg.Mounter, target, mount.Network); err != nil {
			return errors.Join(cause, err)
		}
	}
	if err := m.removeTarget(ctx, target); err != nil {
		return errors.Join(cause, err)
	}
	m.log.Warn("unmounted volume without its driver, as its record is damaged", zap.String("path", target), zap.Error(cause))
	return m.removeWithRecord(dir)
}

// users returns the mounts in directories of pods of the volume that is staged at path. A bind mount has
// the same device and source as the original mount, and the same root or one below.
func (m *Manager) users(ctx context.Context, path string) ([]string, error) {
	table, err := m.cfg.Mounter.Table(ctx)
	if err != nil {
		return nil, fmt.Errorf("read mount table: %w", err)
	}
	real, err := mount.Resolve(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// Nothing is staged, or the driver mounts nothing there.
	at := table.At(real)
	if len(at) == 0 {
		return nil, nil
	}
	// If there are several mounts, the last one is on top, so pods get that one.
	own := at[len(at)-1]
	var out []string
	for _, e := range table {
		if e.Major == own.Major && e.Minor == own.Minor && e.Source == own.Source && (e.Root == own.Root || mount.IsBelow(e.Root, own.Root)) &&
			strings.Contains(e.Target, "/volumes/"+strings.ReplaceAll(pluginName, "/", "~")+"/") {
			out = append(out, e.Target)
		}
	}
	return out, nil
}

// own gives the files of a volume to the pod's group. If that takes long, the pod gets a warning
// event. It ends with ctx.
func own(ctx context.Context, v *volumemgr.Volume, target string) error {
	return fsgroup.Apply(ctx, fsgroup.Request{
		Root: target, GID: *v.FSGroup,
		OnRootMismatch: v.FSGroupPolicy != nil && *v.FSGroupPolicy == v1.FSGroupChangeOnRootMismatch,
		Progress: func(n int64, first bool) {
			text := fmt.Sprintf("Still setting the group of files in volume %s: %d files are done.", v.Name, n)
			if first {
				text = fmt.Sprintf("Setting the group of volume %s is slow; consider fsGroupChangePolicy OnRootMismatch.", v.Name)
			}
			v.Warn("VolumePermissionChangeInProgress", text)
		},
	})
}

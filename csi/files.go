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

// Directories and mounts of volumes. Two rules: a mount is never removed, and never
// accessed on a goroutine that others wait for; and nothing is removed recursively,
// since it could be user data.

// message is a request or an answer of a driver.
type message = proto.Message

// look is os.Lstat for a path that a driver has mounted, which may never return.
func (m *Manager) look(ctx context.Context, path string) (fs.FileInfo, error) {
	return m.looks.Do(ctx, path, func() (fs.FileInfo, error) { return os.Lstat(path) })
}

// published checks the path that a driver reports as published: pods must not get a
// link in place of a directory. An error is an ErrUncertain, since the driver has
// changed something.
func (m *Manager) published(ctx context.Context, driver, target string) error {
	info, err := m.look(ctx, target)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory, but %s", target, info.Mode().Type())
	}
	if err != nil {
		return fmt.Errorf("driver %s says that the volume is published: %w: %w", driver, err, volumemgr.ErrUncertain)
	}
	return nil
}

// mounted reports whether anything is mounted at path. It reads the mount table, and
// never the file system that is mounted.
func (m *Manager) mounted(ctx context.Context, path string) (bool, error) {
	found, err := mount.Find(ctx, m.cfg.Mounter, path)
	if err != nil {
		return false, fmt.Errorf("mount table: %w", err)
	}
	return len(found) > 0, nil
}

// removePublication removes the directory of a publication, with its record, if
// nothing is mounted there and it is otherwise empty. The record is removed just
// before the directory: without it the driver of the volume is not known. Missing
// parts are no error, so that it can be repeated after a crash.
func (m *Manager) removePublication(ctx context.Context, dir string) error {
	if err := m.removeTarget(ctx, filepath.Join(dir, mountName)); err != nil {
		return err
	}
	return m.removeWithRecord(dir)
}

// removeTarget removes a driver's mount point: an empty directory, or an empty
// file. It fails if the driver has reported success without unmounting.
func (m *Manager) removeTarget(ctx context.Context, target string) error {
	if is, err := m.mounted(ctx, target); err != nil {
		return err
	} else if is {
		return fmt.Errorf("%s is still a mount point", target)
	}
	// If the driver mounted nothing, the pod may have written to the disk below:
	// that is user data.
	if info, err := os.Lstat(target); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
		return fmt.Errorf("%s is a file of %d bytes, want an empty one or an empty directory", target, info.Size())
	}
	return m.remove(target)
}

// removeWithRecord removes a record and its directory. A file in the place of the
// directory goes as well.
func (m *Manager) removeWithRecord(dir string) error {
	if err := m.cfg.step(); err != nil {
		return err
	}
	if err := removeRecord(dir); err != nil && !errors.Is(err, syscall.ENOTDIR) {
		return err
	}
	return m.remove(dir)
}

// remove removes a file or an empty directory; a missing one is a success.
func (m *Manager) remove(path string) error {
	if err := m.cfg.step(); err != nil {
		return err
	}
	return errors.Join(gone(os.Remove(path)), m.cfg.step())
}

// write puts a record into a directory.
func (m *Manager) write(dir string, r record) error {
	if err := m.cfg.step(); err != nil {
		return err
	}
	return errors.Join(writeRecord(dir, r), m.cfg.step())
}

// gone returns nil for an error that says that the file does not exist.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// abandon unmounts a volume whose record is damaged, without its driver: a power
// failure may damage a record of the kubelet, which writes it in place. The driver
// may keep state for the volume, but the pod does not wait for a person to repair a
// file.
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

// users returns the mounts below pods of the volume staged at path: bind mounts
// have the same device and source, and a root at or below that of the mount from
// which they were made.
func (m *Manager) users(ctx context.Context, path string) ([]string, error) {
	table, err := m.cfg.Mounter.Table(ctx)
	if err != nil {
		return nil, fmt.Errorf("mount table: %w", err)
	}
	real, err := mount.Resolve(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// Nothing is staged, or the driver does not mount there.
	at := table.At(real)
	if len(at) == 0 {
		return nil, nil
	}
	// The last mount is on top; pods have that one.
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

// own gives the files of a volume to the pod's group. It may take long, and warns the
// pod of that; it ends with ctx.
func own(ctx context.Context, v *volumemgr.Volume, target string) error {
	return fsgroup.Apply(ctx, fsgroup.Request{
		Root: target, GID: *v.FSGroup,
		OnRootMismatch: v.FSGroupPolicy != nil && *v.FSGroupPolicy == v1.FSGroupChangeOnRootMismatch,
		Progress: func(n int64, first bool) {
			text := fmt.Sprintf("Setting the group of volume %s goes on, %d files are done.", v.Name, n)
			if first {
				text = fmt.Sprintf("Setting the group of volume %s is slow; consider fsGroupChangePolicy OnRootMismatch.", v.Name)
			}
			v.Warn("VolumePermissionChangeInProgress", text)
		},
	})
}

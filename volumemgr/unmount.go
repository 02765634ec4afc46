package volumemgr

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"
)

// Unmounting a pod's volumes and removing the directories around them. After a crash at any
// point, the next Unmount, Remove or Sweep continues.

// Unmount unmounts all volumes of the pod, including those that an earlier process set up. It
// blocks until each volume is gone or has failed once. Failed volumes are retried with back-off
// until they are gone or Mount is called. The containers of the pod must have stopped.
//
// Directories that belong to no plugin are not removed; see Remove. Errors are ErrWanted if Mount
// was called meanwhile, ErrStopped, the error of ctx, and an [Error] for each remaining volume.
func (m *Manager) Unmount(ctx context.Context, uid types.UID) error {
	if err := m.begun(ctx); err != nil {
		return err
	}
	if !plain(string(uid)) {
		return nil // Mount rejects such a UID, so there is nothing to unmount
	}
	p, err := m.enter(ctx, uid)
	if err != nil {
		return err
	}
	defer m.leave(p)
	return m.unmount(ctx, p, func() bool { return false })
}

// unmount does the work of Unmount. It is called with the pod's gate held, and releases the gate
// while it waits. If spare returns true, unmount changes nothing and returns ErrWanted. It reads
// the pod's directory, since there may be volumes that have no record.
func (m *Manager) unmount(ctx context.Context, p *pod, spare func() bool) error {
	if spare() {
		return ErrWanted
	}
	found, _, scanErr := m.scan(p.uid)
	m.mu.Lock()
	if m.stopped {
		m.mu.Unlock()
		return ErrStopped
	}
	// told says that the owner of the pod has decided, so volumes of an earlier process are no
	// longer kept.
	p.wanted, p.told, p.sure, p.failing = false, true, true, false
	for _, v := range p.volumes {
		if v.desired {
			v.desired, v.abandoned = false, false
			v.settle(ErrUnwanted)
		}
	}
	m.adopt(p, found) // the directory may have volumes of a failed set-up
	// All volumes count, including those that the last Mount did not want, since the directory
	// must be empty before it is removed.
	w := newWaiter()
	for _, v := range p.volumes {
		w.add(v)
	}
	for _, v := range p.volumes {
		// Unmount does not wait for a hung operation; its caller tries again.
		if v.run != nil && v.run.overdue {
			w.drop(v, &Error{Volume: v.shown(), Err: ErrHung})
		}
		if v.fails.op == opTearDown {
			v.fails.retryNow() // the caller requests the tear-down now
		}
		m.wake(v)
	}
	w.ready()
	m.mu.Unlock()

	p.gate <- struct{}{} // released during the wait, so that a Mount can proceed
	err := m.wait(ctx, w, func(*volume) {})
	// No ctx is needed: the gate is held only during steps on disk, and released during waits as
	// here.
	<-p.gate
	if err = errors.Join(scanErr, err); err != nil {
		return err
	}
	m.mu.Lock()
	// While the gate was free, a Mount may have begun to use the pod's directories.
	again, left := p.wanted, len(p.volumes)
	m.mu.Unlock()
	if again {
		return ErrWanted
	}
	if left > 0 {
		return fmt.Errorf("%d volumes of pod %s were mounted while others were unmounted", left, p.uid)
	}
	return m.tidy(ctx, p.uid)
}

// tidy removes what remains of a pod without volumes: subPath mounts of volumes that have no
// directory, and empty directories.
func (m *Manager) tidy(ctx context.Context, uid types.UID) error {
	dir := m.podDir(uid)
	sub := filepath.Join(dir, subPathsDir)
	there, err := m.isDir(sub)
	if err != nil {
		return err
	}
	var entries []fs.DirEntry
	if there {
		if entries, err = m.cfg.Files.ReadDir(sub); err != nil {
			return err
		}
	}
	var errs []error
	for _, e := range entries {
		errs = append(errs, m.cleanSubPaths(ctx, filepath.Join(sub, e.Name())))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("unmount subPath mounts: %w", err)
	}
	for _, name := range []string{volumesDir, devicesDir, subPathsDir} {
		m.removeEmpty(filepath.Join(dir, name))
	}
	return nil
}

// isDir reports whether path is an existing directory. A link or a file is an error. Call it
// before every removal: a pod's containers may have replaced a directory by a link.
func (m *Manager) isDir(path string) (bool, error) {
	info, err := m.cfg.Files.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case !info.IsDir():
		return false, fmt.Errorf("%s is not a directory", path)
	}
	return true, nil
}

// removeEmpty removes a directory and its subdirectories if they are empty. Anything else,
// including mounts, is kept; Remove reports it.
func (m *Manager) removeEmpty(dir string) {
	if there, err := m.isDir(dir); !there || err != nil {
		return
	}
	entries, err := m.cfg.Files.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.IsDir() {
			_ = m.cfg.Files.Remove(filepath.Join(dir, e.Name())) // fails if it is not empty
		}
	}
	// No check is needed, since rmdir(2) refuses a directory that has entries (ENOTEMPTY) or is a
	// mount point (EBUSY).
	_ = m.cfg.Files.Remove(dir)
}

// cleanSubPaths unmounts the subPaths of a volume and removes their mount points,
// dir/<container>/<index>. The volume cannot be unmounted while a subPath is mounted (EBUSY).
func (m *Manager) cleanSubPaths(ctx context.Context, dir string) error {
	if there, err := m.isDir(dir); !there || err != nil {
		return err
	}
	mounts, err := m.cfg.Mounter.Mounts(dir)
	if err != nil {
		return fmt.Errorf("read mount table: %w", err)
	}
	for i := len(mounts) - 1; i >= 0; i-- { // in reverse order of mounting
		if err := m.cfg.Mounter.Unmount(ctx, mounts[i].Path); err != nil {
			return fmt.Errorf("unmount %s: %w", mounts[i].Path, err)
		}
	}
	// Read the table again: something may have been mounted since, and nothing mounted may be
	// removed.
	if mounts, err = m.cfg.Mounter.Mounts(dir); err != nil {
		return fmt.Errorf("read mount table: %w", err)
	}
	if len(mounts) > 0 {
		return fmt.Errorf("%s is still a mount point", mounts[0].Path)
	}
	containers, err := m.subDirs(dir)
	if err != nil {
		return err
	}
	for _, c := range containers {
		if err := m.removeMountPoints(c); err != nil {
			return err
		}
	}
	return m.cfg.Files.Remove(dir)
}

// subDirs returns the directories in dir, and an error for any other entry: on this level the
// layout has only directories, so a file is unknown data.
func (m *Manager) subDirs(dir string) ([]string, error) {
	entries, err := m.cfg.Files.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if !e.IsDir() {
			return nil, fmt.Errorf("%s is not a directory", path)
		}
		out = append(out, path)
	}
	return out, nil
}

// removeMountPoints removes the empty files and directories in dir, and dir.
func (m *Manager) removeMountPoints(dir string) error {
	entries, err := m.cfg.Files.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		// A subPath that is a file is mounted on an empty file, one that is a directory on an
		// empty directory.
		info, err := m.cfg.Files.Lstat(path)
		if err != nil {
			return err
		}
		if !info.IsDir() && (!info.Mode().IsRegular() || info.Size() > 0) {
			return fmt.Errorf("%s is not a mount point for a subPath: want an empty file or directory", path)
		}
		if err := m.cfg.Files.Remove(path); err != nil {
			return err
		}
	}
	return m.cfg.Files.Remove(dir)
}

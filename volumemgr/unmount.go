package volumemgr

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"
)

// Unmounting a pod's volumes, and removing the directories around them. After a crash
// at any point, the next Unmount, Remove or Sweep continues.

// Unmount unmounts all volumes of the pod, whether a Mount of this process or an
// earlier process set them up. It blocks until each volume is gone or has failed
// once. Failed ones are retried with back-off until they are gone or Mount is
// called. The containers of the pod must have stopped.
//
// Directories that belong to no plugin are not removed; see Remove. Errors are
// ErrWanted if Mount was called meanwhile, ErrStopped, the end of ctx, and an
// [Error] for each remaining volume.
func (m *Manager) Unmount(ctx context.Context, uid types.UID) error {
	if err := m.begun(ctx); err != nil {
		return err
	}
	if !plain(string(uid)) {
		return nil // Mount refused it: there is nothing of it
	}
	p, err := m.enter(ctx, uid)
	if err != nil {
		return err
	}
	defer m.leave(p)
	return m.unmount(ctx, p, func() bool { return false })
}

// unmount is Unmount with the pod's gate held; it releases the gate while it waits.
// If spare returns true, it changes nothing and returns ErrWanted. It reads the pod's
// directory, since a volume there may have no record.
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
	// told ends the time in which volumes of an earlier process are kept: the owner
	// of the pod has decided.
	p.wanted, p.told, p.sure, p.failing = false, true, true, false
	for _, v := range p.volumes {
		if v.desired {
			v.desired, v.abandoned = false, false
			v.settle(ErrUnwanted)
		}
	}
	m.adopt(p, found) // finds volumes of a failed set-up as well
	// All volumes count, also those that the last Mount did not want: a directory
	// must be empty before it goes.
	w := newWaiter()
	for _, v := range p.volumes {
		w.add(v)
	}
	for _, v := range p.volumes {
		// Unmount does not wait for a hung operation; the caller tries again.
		if v.run != nil && v.run.overdue {
			w.drop(v, &Error{Volume: v.shown(), Err: ErrHung})
		}
		if v.fails.op == opTearDown {
			v.fails.retryNow() // a caller requests the tear-down now
		}
		m.wake(v)
	}
	w.ready()
	m.mu.Unlock()

	p.gate <- struct{}{} // released, so that a Mount need not wait
	err := m.wait(ctx, w, func(*volume) {})
	// A plain receive: the gate is held only for steps on disk, or released during
	// waits as here.
	<-p.gate
	if err = errors.Join(scanErr, err); err != nil {
		return err
	}
	m.mu.Lock()
	// While the gate was free, a Mount may have started to use the pod's
	// directories.
	again, left := p.wanted, len(p.volumes)
	m.mu.Unlock()
	if again {
		return ErrWanted
	}
	if left > 0 {
		return fmt.Errorf("%d volumes of pod %s came while others were unmounted", left, p.uid)
	}
	return m.tidy(ctx, p.uid)
}

// tidy removes the rest of a pod without volumes: subPath mounts of volumes without
// a directory of their own, and empty directories.
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
		return fmt.Errorf("subPath mounts: %w", err)
	}
	for _, name := range []string{volumesDir, devicesDir, subPathsDir} {
		m.removeEmpty(filepath.Join(dir, name))
	}
	return nil
}

// isDir reports whether path is an existing directory. A link or a file is an error. All
// removals call it first: a pod's containers may have replaced a directory by a link.
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

// removeEmpty removes a directory and its subdirectories if they are empty.
// Anything else, and mounts, are kept; Remove reports them.
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
			_ = m.cfg.Files.Remove(filepath.Join(dir, e.Name())) // fails if anything is in it
		}
	}
	// No check is needed: rmdir(2) refuses a directory with entries (ENOTEMPTY) and a
	// mount point (EBUSY).
	_ = m.cfg.Files.Remove(dir)
}

// cleanSubPaths unmounts the subPaths of a volume and removes their mount points:
// dir/<container>/<index>. While one is mounted, the unmount of the volume fails
// with EBUSY.
func (m *Manager) cleanSubPaths(ctx context.Context, dir string) error {
	if there, err := m.isDir(dir); !there || err != nil {
		return err
	}
	mounts, err := m.cfg.Mounter.Mounts(dir)
	if err != nil {
		return fmt.Errorf("mount table: %w", err)
	}
	for i := len(mounts) - 1; i >= 0; i-- { // in reverse order of mounting
		if err := m.cfg.Mounter.Unmount(ctx, mounts[i].Path); err != nil {
			return fmt.Errorf("unmount %s: %w", mounts[i].Path, err)
		}
	}
	// The table is read again: a mount may have been made since, and nothing mounted
	// may be removed.
	if mounts, err = m.cfg.Mounter.Mounts(dir); err != nil {
		return fmt.Errorf("mount table: %w", err)
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

// subDirs returns the directories in dir, and an error for anything else: the
// layout has only directories on this level, so that a file is unknown data.
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
		// A subPath of a file is bound to an empty file, one of a directory to an
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

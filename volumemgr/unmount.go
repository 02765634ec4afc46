package volumemgr

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"
)

// Unmount takes down all volumes of the pod of that UID, whether a Mount made
// them or an earlier process, and waits until they are gone or each that is
// not has failed once. Those are tried again, with back-off, until they are
// gone or Mount is called. Containers of the pod must have stopped.
//
// Directories that belong to no plugin are left alone; see Remove.
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

// unmount is called by who holds the pod's gate, and holds it when it returns.
// It does nothing if spare says so.
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
	p.wanted, p.told, p.sure, p.failing = false, true, true, false
	for _, v := range p.volumes {
		if v.desired {
			v.desired, v.abandoned = false, false
			v.settle(ErrUnwanted)
		}
	}
	m.adopt(p, found) // what a failed set-up left as well
	w := newWaiter()
	for _, v := range p.volumes {
		w.add(v)
	}
	for _, v := range p.volumes {
		if v.run != nil && v.run.overdue {
			w.drop(v, &Error{Volume: v.shown(), Err: ErrHung})
		}
		v.failNow(opTearDown)
		m.wake(v)
	}
	w.ready()
	m.mu.Unlock()

	p.gate <- struct{}{} // whoever wants the pod again need not wait
	err := m.wait(ctx, w, func(*volume) {})
	<-p.gate
	if err = errors.Join(scanErr, err); err != nil {
		return err
	}
	m.mu.Lock()
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

// failNow makes the next try of a tear-down due at once: somebody asks for it.
func (v *volume) failNow(o op) {
	if v.fails.op == o {
		v.fails.now()
	}
}

// tidy removes what is left beside the volumes of a pod that has none: subPath
// mounts of volumes without a directory of their own, and empty directories.
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

// isDir reports whether there is a directory at path. Something else is an
// error: a link, for one, would lead elsewhere.
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

// removeEmpty removes a directory, and those in it, as far as they are empty.
// What is not, and what is mounted, is not a pod's own and stays for Remove to
// complain of.
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
	_ = m.cfg.Files.Remove(dir)
}

// cleanSubPaths unmounts what is mounted from a volume by subPath, and removes
// the mount points: dir/<container>/<index>.
func (m *Manager) cleanSubPaths(ctx context.Context, dir string) error {
	if there, err := m.isDir(dir); !there || err != nil {
		return err
	}
	mounts, err := m.cfg.Mounter.Mounts(dir)
	if err != nil {
		return fmt.Errorf("mount table: %w", err)
	}
	for i := len(mounts) - 1; i >= 0; i-- { // what was mounted last goes first
		if err := m.cfg.Mounter.Unmount(ctx, mounts[i].Path); err != nil {
			return fmt.Errorf("unmount %s: %w", mounts[i].Path, err)
		}
	}
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

// subDirs lists what is in dir, and refuses what is no directory.
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

package volumemgr

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Directories of pods that are gone. They are removed in an order that cannot lose data: first
// volumes, by their plugins, then empty directories, then the agent's own files, and last the
// pod's directory.

// removeAll calls remove in parallel for each pod whose value in gone is true, so that a pod that
// hangs does not delay others. It returns when all calls have returned or ctx has ended. ErrWanted
// is not a failure: the pod is wanted again.
func (m *Manager) removeAll(ctx context.Context, gone map[types.UID]bool, known func(types.UID) bool) error {
	var (
		mu   sync.Mutex
		errs []error
		n    int
		wg   sync.WaitGroup
	)
	for uid, is := range gone {
		if !is {
			continue
		}
		n++
		wg.Go(func() {
			err := m.remove(ctx, uid, func() bool { return known(uid) })
			if err != nil && !errors.Is(err, ErrWanted) {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("remove directory of pod %s: %w", uid, err))
			}
		})
	}
	wg.Wait()
	m.met.orphans.Set(float64(n))
	m.met.orphanErrors.Set(float64(len(errs)))
	return errors.Join(errs...)
}

// Remove unmounts the pod's volumes and removes its directory.
//
// It does not remove anything unknown: a file in place of a volume, a volume of an unknown plugin
// that is not empty, or anything with a mount below it. Then the directory is kept, and the error
// names the obstacle. ErrWanted means that a Mount of the pod was called meanwhile. A pod without
// a directory is not an error.
func (m *Manager) Remove(ctx context.Context, uid types.UID) error {
	if err := m.begun(ctx); err != nil {
		return err
	}
	if !plain(string(uid)) {
		return nil // Mount rejects such a UID, so there is nothing to remove
	}
	return m.remove(ctx, uid, func() bool { return false })
}

// remove does the work of Remove. spare is called with the gate held. If it returns true, the pod
// is wanted again: remove changes nothing and returns ErrWanted. The gate is held while the
// directory is removed, so that no Mount creates directories in it.
func (m *Manager) remove(ctx context.Context, uid types.UID, spare func() bool) error {
	p, err := m.enter(ctx, uid)
	if err != nil {
		return err
	}
	defer m.leave(p)
	if err := m.unmount(ctx, p, spare); err != nil {
		return err
	}
	return m.removeDir(uid)
}

// removeDir removes the directory of a pod whose volumes have been torn down. The pod's gate is
// held, m.mu is not.
func (m *Manager) removeDir(uid types.UID) error {
	dir := m.podDir(uid)
	// A link in place of the directory is rejected, since its target does not belong to the pod.
	info, err := m.cfg.Files.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	// Nothing is removed while anything is mounted below: an unexpected mount means that the
	// content is not fully known.
	mounts, err := m.cfg.Mounter.Mounts(dir)
	if err != nil {
		return fmt.Errorf("read mount table: %w", err)
	}
	if len(mounts) > 0 {
		return fmt.Errorf("%s is still mounted", mounts[0].Path)
	}
	var errs []error
	// Only directories are removed, and none below a mount point: a file among them is unknown
	// data.
	for _, name := range []string{volumesDir, devicesDir, subPathsDir} {
		errs = append(errs, m.cfg.Files.RemoveDirs(filepath.Join(dir, name)))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	// The remaining entries are files that the agent wrote for the pod, such as etc-hosts and the
	// state of plugins.
	entries, err := m.cfg.Files.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		switch e.Name() {
		case volumesDir, devicesDir, subPathsDir:
			errs = append(errs, fmt.Errorf("%s exists again after its removal", filepath.Join(dir, e.Name())))
		default:
			errs = append(errs, m.cfg.Files.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return m.cfg.Files.Remove(dir)
}

//go:build linux

package image

import (
	"context"
	"path/filepath"
	"time"

	"go.uber.org/zap"
)

// sweep returns the keys of the layers that no image, lease or pull needs, except layers of failed
// pulls that are kept for the next try: longer than deadline, and with most bytes together. hung
// means that a record could not be read. Such a record could name any layer, so sweep then returns
// none. It is a pure function of the tables, so that tests can cover every case.
func sweep(layers map[string]*layer, images map[digest]*record, leases map[string]*lease, hung bool, deadline time.Time, most int64) []string {
	if hung {
		return nil
	}
	used := map[string]bool{}
	// Records count even if the image is incomplete: a pull that completes it reuses these
	// layers.
	for _, r := range images {
		for _, k := range r.Layers {
			used[k] = true
		}
	}
	for _, l := range leases {
		// The record of a lease was damaged: its container may run on any of the
		// layers.
		if l.Unknown {
			return nil
		}
		for _, k := range l.Layers {
			used[k] = true
		}
	}
	unused := map[string]partial{}
	for key, l := range layers {
		// A layer that a pull holds is not named by a record yet.
		if !used[key] && l.held == 0 {
			unused[key] = partial{l.Size, l.keep}
		}
	}
	return surplus(unused, deadline, most)
}

// collect removes the layers that sweep returns. When it returns, they are in the trash. It
// closes the channel files when their files are deleted. files is nil if there are no such
// layers.
func (s *Store) collect(ctx context.Context) (files <-chan struct{}) {
	// It runs after every removal and periodically: what it misses now is collected the next
	// time.
	if take(ctx, s.disk) != nil {
		return nil
	}
	defer func() { <-s.disk }()
	deadline := s.deadline()
	// The decision and the removal from the table are one step: a later pull downloads the layer
	// again instead of using one that is about to be deleted.
	s.mu.Lock()
	keys := sweep(s.layers, s.images, s.leases, s.hung, deadline, s.cfg.MaxImageBytes)
	dirs := make([]string, len(keys))
	for i, k := range keys {
		dirs[i] = s.layers[k].dir
		delete(s.layers, k)
	}
	s.mu.Unlock()
	// A crash from here on leaves directories that no image names: the next start loads them as
	// layers and collects them.
	for _, d := range dirs {
		rel, err := filepath.Rel(s.cfg.RootDir, d)
		// A rename takes no time; the removal of a tree of 100,000 files would block
		// pulls.
		if err == nil {
			err = s.putAway(rel)
		}
		// The directory does no harm: commit moves it away if it unpacks a layer of the same key.
		if err != nil {
			s.cfg.Log.Warn("failed to remove unused layer", zap.String("directory", d), zap.Error(err))
		}
	}
	if len(dirs) == 0 {
		return nil
	}
	done := make(chan struct{})
	s.mu.Lock()
	s.purged = append(s.purged, done)
	s.mu.Unlock()
	// Run deletes the files: the caller does not wait for the disk.
	s.purge.Set()
	return done
}

// collected does the same as collect, but waits until the files are deleted, so that the caller
// can read the free space afterwards. An error means that ctx ended the wait.
func (s *Store) collected(ctx context.Context) error {
	files := s.collect(ctx)
	if files == nil {
		return nil
	}
	select {
	case <-files:
		return nil
	case <-s.over:
		return errClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

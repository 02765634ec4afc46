//go:build linux

package image

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"go.uber.org/zap"
)

// Check reads all files of all layers and compares them with the sums that were
// made when they were unpacked. A layer that differs is set aside, unless a
// container uses it: the images that have it are not there any more until they
// are pulled again. It returns the keys of damaged layers, also together with an
// error, and reads as much as the layers have.
func (s *Store) Check(ctx context.Context) (damaged []string, err error) {
	if err := s.await(ctx); err != nil {
		return nil, coded(err)
	}
	// Only the list is made under the lock: reading the files takes minutes. Staged
	// layers are left out, as they are still in ingest and a pull works on them.
	s.mu.Lock()
	var keys []string
	for k, l := range s.layers {
		if l.committed {
			keys = append(keys, k)
		}
	}
	s.mu.Unlock()
	// In order, so that two runs over a damaged store log the same lines in the same
	// order.
	slices.Sort(keys)
	for _, k := range keys {
		// Held, the layer cannot be collected while it is read.
		if !s.hold(k) {
			continue // collected meanwhile
		}
		verr := verify(s.path(layersDir, k, treeDir), s.path(layersDir, k, sumsFile), s.cfg.MaxLayerEntries, func() error { return ctx.Err() })
		s.release([]string{k})
		// The error of a canceled verification says nothing about the layer.
		if ctx.Err() != nil {
			return damaged, coded(context.Cause(ctx))
		}
		if verr != nil {
			damaged = append(damaged, k)
			s.cfg.Log.Warn("found damaged layer", zap.String("layer", k), zap.Error(verr))
			// The other layers are checked all the same.
			err = errors.Join(err, s.setAside(ctx, k))
		}
	}
	return damaged, coded(err)
}

// hold is as ensure, for a layer that is there. It reports false for a layer that has
// been collected, and never starts a flight.
func (s *Store) hold(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.layers[key]
	if l != nil {
		l.held++
	}
	return l != nil
}

// setAside takes a layer away that nobody uses right now. The check of its users and
// the removal from the table are one step under s.mu, so that neither a pull nor a
// container can begin to use it in between.
func (s *Store) setAside(ctx context.Context, key string) error {
	// Renames of layers exclude each other: commit may be giving a new layer this very
	// name.
	if err := take(ctx, s.disk); err != nil {
		return err
	}
	defer func() { <-s.disk }()
	s.mu.Lock()
	// Not in the table means that somebody else has removed it.
	if s.layers[key] == nil {
		s.mu.Unlock()
		return nil
	}
	used := s.layers[key].held > 0
	for _, l := range s.leases {
		// Files under a mounted overlay must not move: running containers would lose
		// their root.
		used = used || l.Unknown || slices.Contains(l.Layers, key)
	}
	if !used {
		delete(s.layers, key)
	}
	// The image is not whole from here on, so that its next use pulls it again.
	s.mu.Unlock()
	if used {
		return fmt.Errorf("layer %s is damaged, in use, and kept", key)
	}
	return s.setLayerAside(filepath.Join(layersDir, key))
}

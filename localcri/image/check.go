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
	s.mu.Lock()
	var keys []string
	for k, l := range s.layers {
		if l.committed {
			keys = append(keys, k)
		}
	}
	s.mu.Unlock()
	slices.Sort(keys)
	for _, k := range keys {
		if !s.hold(k) {
			continue // collected meanwhile
		}
		verr := verify(s.path(layersDir, k, treeDir), s.path(layersDir, k, sumsFile), func() error { return ctx.Err() })
		s.release([]string{k})
		if ctx.Err() != nil {
			return damaged, coded(context.Cause(ctx))
		}
		if verr != nil {
			damaged = append(damaged, k)
			s.cfg.Log.Warn("found damaged layer", zap.String("layer", k), zap.Error(verr))
			err = errors.Join(err, s.setAside(ctx, k))
		}
	}
	return damaged, coded(err)
}

// hold is as ensure, for a layer that is there.
func (s *Store) hold(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.layers[key]
	if l != nil {
		l.held++
	}
	return l != nil
}

// setAside takes a layer away that nobody uses right now.
func (s *Store) setAside(ctx context.Context, key string) error {
	if err := take(ctx, s.disk); err != nil {
		return err
	}
	defer func() { <-s.disk }()
	s.mu.Lock()
	used := s.layers[key] == nil || s.layers[key].held > 0
	for _, l := range s.leases {
		used = used || l.Unknown || slices.Contains(l.Layers, key)
	}
	if !used {
		delete(s.layers, key)
	}
	s.mu.Unlock()
	if used {
		return fmt.Errorf("layer %s is damaged, in use, and kept", key)
	}
	return s.setLayerAside(filepath.Join(layersDir, key))
}

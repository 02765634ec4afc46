//go:build linux

package image

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"
)

// sweep says which layers nobody needs: none while a record could not be read,
// which might name any.
func sweep(layers map[string]*layer, images map[digest]*record, leases map[string]*lease, hung bool, now time.Time) []string {
	if hung {
		return nil
	}
	used := map[string]bool{}
	for _, r := range images {
		for _, k := range r.Layers {
			used[k] = true
		}
	}
	for _, l := range leases {
		if l.Unknown {
			return nil
		}
		for _, k := range l.Layers {
			used[k] = true
		}
	}
	var out []string
	for key, l := range layers {
		if !used[key] && l.held == 0 && !now.Before(l.keep) {
			out = append(out, key)
		}
	}
	return out
}

// collect removes layers that nobody needs. They are out of the way when it
// returns; their files go afterwards.
func (s *Store) collect(ctx context.Context) {
	if take(ctx, s.disk) != nil {
		return
	}
	defer func() { <-s.disk }()
	s.mu.Lock()
	keys := sweep(s.layers, s.images, s.leases, s.hung, time.Now())
	dirs := make([]string, len(keys))
	for i, k := range keys {
		dirs[i] = s.layers[k].dir
		delete(s.layers, k)
	}
	s.mu.Unlock()
	for _, d := range dirs {
		rel, err := filepath.Rel(s.cfg.RootDir, d)
		if err == nil {
			err = s.putAway(rel)
		}
		if err != nil {
			s.cfg.Log.Warn("failed to put away layer", zap.String("directory", d), zap.Error(err))
		}
	}
	if len(dirs) > 0 {
		select {
		case s.purge <- struct{}{}:
		default:
		}
	}
}

// dropPartial removes what was downloaded in part and nobody came back for.
func (s *Store) dropPartial() {
	s.mu.Lock()
	var old []string
	for name, since := range s.partial {
		if s.lanes[name] == nil && time.Since(since) >= keepPartial {
			old = append(old, name)
			delete(s.partial, name)
		}
	}
	s.mu.Unlock()
	for _, name := range old {
		_ = os.Remove(s.path(ingestDir, name))
	}
}

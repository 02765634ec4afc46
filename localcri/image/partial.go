//go:build linux

package image

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/safefile"
)

// Pulls that fail or are interrupted leave partial downloads and layers without an image, so that
// the next pull continues them. Both are kept until one of these limits is reached.
const (
	// keepPartial is the time since a pull has last used them, across restarts.
	keepPartial = 24 * time.Hour
	// keepWhenFull applies while pulls lack space. It is longer than the pause between two tries of
	// a kubelet, so that a pull that fails for lack of space does not download everything again.
	keepWhenFull = 10 * time.Minute
	// keepAtStart is the least time after the start. A machine may have been off for days.
	keepAtStart = time.Hour
)

// tidyInterval is the time between two checks of these limits, and the longest time that a finished
// layer of a pull is not synced to the disk. The kernel by default writes files back after the same
// time.
const tidyInterval = 30 * time.Second

// Names in ingest. Everything else in it is removed at the start.
const (
	blobPrefix   = "blob-"   // a partial download; followed by the digest of the blob
	syncedPrefix = "synced-" // a layer whose files are synced; followed by the key of the layer
)

// partial is a partial download that no pull uses at the moment.
type partial struct {
	size int64
	keep time.Time // until then it is kept
}

// openPartial opens the file of a blob and returns it with the number of bytes that it has
// already. It creates the file if it is missing. If the file has more than blobSize bytes, it is
// not a part of the blob, and is emptied. The caller uses the lane of that name until it calls
// closePartial.
func (s *Store) openPartial(name string, blobSize int64) (*os.File, int64, error) {
	fd, err := unix.Open(s.path(ingestDir, name), unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, 0, err
	}
	f := os.NewFile(uintptr(fd), s.path(ingestDir, name))
	info, err := f.Stat()
	size := int64(0)
	if err == nil {
		size = info.Size()
		// Longer than the blob: a remainder of something else with that name. The download begins
		// again.
		if size > blobSize {
			size, err = 0, f.Truncate(0)
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, size, nil
}

// closePartial closes the file of a blob, and removes it unless keep is set.
func (s *Store) closePartial(f *os.File, size int64, keep bool) {
	name := filepath.Base(f.Name())
	if !keep || size == 0 {
		_ = os.Remove(f.Name())
	}
	_ = f.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.partial, name)
	if keep && size > 0 {
		s.partial[name] = partial{size, time.Now().Add(keepPartial)}
	}
}

// readIngest reads what former processes have left in ingest: it keeps partial downloads and synced
// layers, and moves everything else to the trash. The layers in layers have been read.
func (s *Store) readIngest() error {
	entries, err := safefile.Entries(s.path(ingestDir), maxStored)
	if errors.Is(err, safefile.ErrTooMany) {
		return errors.Join(s.putAway(ingestDir), os.Mkdir(s.path(ingestDir), 0o700))
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && s.keepIngested(e.Name(), info) {
			continue
		}
		// Renamed first and deleted later: half-unpacked layers may be large.
		if err := s.putAway(filepath.Join(ingestDir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// keepIngested adds a partial download or a synced layer of a former process to the tables. It
// returns false if the entry is neither.
func (s *Store) keepIngested(name string, info fs.FileInfo) bool {
	// Relative to now: the clock may be wrong at a start, and be set later.
	now := time.Now()
	keep := now.Add(min(max(keepPartial-now.Sub(info.ModTime()), keepAtStart), keepPartial))
	if hex, ok := strings.CutPrefix(name, blobPrefix); ok && digest(digestPrefix+hex).check() == nil && info.Mode().IsRegular() {
		s.partial[name] = partial{info.Size(), keep}
		return true
	}
	key, ok := strings.CutPrefix(name, syncedPrefix)
	if !ok || s.layers[key] != nil {
		return false
	}
	m, err := readMeta(s.path(ingestDir, name), key)
	if err != nil {
		s.cfg.Log.Warn("removed damaged layer of an interrupted pull", zap.String("layer", key), zap.Error(err))
		return false
	}
	s.layers[key] = &layer{layerMeta: *m, dir: s.path(ingestDir, name), keep: keep}
	return true
}

// tidy enforces the limits of what pulls have left, and syncs finished layers of running pulls.
func (s *Store) tidy(ctx context.Context) {
	if err := s.syncStaged(ctx); err != nil && ctx.Err() == nil {
		s.cfg.Log.Warn("failed to sync layers of running pulls", zap.Error(err))
	}
	s.dropPartial()
	s.collect(ctx)
}

// deadline is the time until which leftovers of pulls must have been kept to stay: now, or later if
// the disk is full. Below the reserve, nothing stays, since pods would be evicted.
func (s *Store) deadline() time.Time {
	now := time.Now()
	switch {
	case errors.Is(s.free(0), errFull):
		return now.Add(keepPartial)
	case errors.Is(s.space(), errFull):
		return now.Add(keepPartial - keepWhenFull)
	}
	return now
}

// dropPartial removes partial downloads that have reached a limit.
func (s *Store) dropPartial() {
	deadline := s.deadline()
	s.mu.Lock()
	idle := map[string]partial{}
	for name, p := range s.partial {
		if s.lanes[name] == nil {
			idle[name] = p
		}
	}
	s.mu.Unlock()
	// As much as one pull can leave.
	most := int64(math.MaxInt64)
	if jobs := int64(pullJobs); s.cfg.MaxLayerBytes < most/jobs {
		most = jobs * s.cfg.MaxLayerBytes
	}
	for _, name := range surplus(idle, deadline, most) {
		leave := s.tryEnter(name)
		if leave == nil {
			continue // a pull has begun to use it
		}
		// Outside the lock: unlink of a large file may take seconds on some file systems.
		_ = os.Remove(s.path(ingestDir, name))
		s.mu.Lock()
		delete(s.partial, name)
		s.mu.Unlock()
		leave()
	}
}

// surplus returns the names of what is kept at most until deadline, and of what exceeds most bytes
// together. What is kept longest comes first within these bytes.
func surplus(all map[string]partial, deadline time.Time, most int64) (out []string) {
	type named struct {
		name string
		partial
	}
	var list []named
	for name, p := range all {
		list = append(list, named{name, p})
	}
	slices.SortFunc(list, func(a, b named) int { return cmp.Or(b.keep.Compare(a.keep), cmp.Compare(a.name, b.name)) })
	for _, p := range list {
		most -= p.size
		if most < 0 || !p.keep.After(deadline) {
			out = append(out, p.name)
		}
	}
	return out
}

// syncStaged makes staged layers survive a restart and a power failure. They have no image yet, so
// they stay in ingest.
func (s *Store) syncStaged(ctx context.Context) error {
	if err := take(ctx, s.disk); err != nil {
		return err
	}
	defer func() { <-s.disk }()
	staged := map[string]string{}
	s.mu.Lock()
	for k, l := range s.layers {
		if !l.committed && l.dir != s.path(ingestDir, syncedPrefix+k) {
			staged[k] = l.dir
		}
	}
	s.mu.Unlock()
	if len(staged) == 0 {
		return nil
	}
	dir, err := openTree(s.path(ingestDir))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Syncfs(dir.fd); err != nil {
		return err
	}
	return s.renameLayers(staged, ingestDir, syncedPrefix)
}

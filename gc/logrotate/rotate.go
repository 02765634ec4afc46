package logrotate

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
)

// rotate rotates a log that has reached its limit, and one that is not there
// is reopened. It returns the files that are to be compressed.
func (m *Manager) rotate(ctx context.Context, l Log, limit int64) (pack []string, err error) {
	fi, err := os.Stat(l.Path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := m.reopen(ctx, l.ID); err != nil {
			return nil, fmt.Errorf("reopen a log that is not there: %w", err)
		}
		fi, err = os.Stat(l.Path)
	}
	if err != nil {
		return nil, err
	}
	if fi.Size() < limit {
		return nil, nil
	}
	dir, base := filepath.Split(l.Path)
	names, err := fileNames(dir)
	if err != nil {
		return nil, err
	}
	t := plan(base, names, m.cfg.MaxFiles)
	for _, n := range t.drop { // first: there may be no space for anything
		m.drop(dir + n)
	}
	aside := l.Path + "." + nextStamp(t.newest, time.Now())
	if err := os.Rename(l.Path, aside); err != nil {
		return nil, err
	}
	if err := m.reopen(ctx, l.ID); err != nil {
		if _, serr := os.Lstat(l.Path); errors.Is(serr, fs.ErrNotExist) {
			// The container writes to the renamed file. Were there a new
			// one, the runtime would have made it, and only its answer is
			// lost.
			if rerr := os.Rename(aside, l.Path); rerr != nil {
				return nil, errors.Join(err, rerr)
			}
			return nil, fmt.Errorf("reopen: %w", err)
		}
	}
	m.met.rotations.WithLabelValues("ok").Inc()
	if m.cfg.PodBudget > 0 {
		m.fit(l.Pod, filepath.Dir(filepath.Dir(l.Path)))
	}
	for _, n := range t.pack {
		pack = append(pack, dir+n)
	}
	return pack, nil
}

func (m *Manager) reopen(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Timeout)
	defer cancel()
	return m.cfg.Runtime.ReopenContainerLog(ctx, id)
}

func fileNames(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	return d.Readdirnames(-1)
}

// drop removes a file that is not to be kept.
func (m *Manager) drop(path string) {
	size := int64(0)
	if fi, err := os.Lstat(path); err == nil {
		size = fi.Size()
	}
	if err := os.Remove(path); err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			m.cfg.Log.Warn("an old log stays", zap.Error(err))
		}
		return
	}
	m.met.dropped.Add(float64(size))
}

// fit removes the oldest rotated logs of a pod until all are within its budget,
// and stay so until the next rotation: logs in use count as large as they may
// become.
func (m *Manager) fit(pod types.UID, podDir string) {
	inUse := map[string]bool{}
	m.mu.Lock()
	limit := m.limit(pod)
	for _, w := range m.logs {
		if w.Pod == pod {
			inUse[filepath.Clean(w.Path)] = true
		}
	}
	m.mu.Unlock()
	containers, err := os.ReadDir(podDir)
	if err != nil {
		m.cfg.Log.Warn("a pod's logs cannot be listed", zap.Error(err))
		return
	}
	var files []podFile
	for _, c := range containers {
		entries, err := os.ReadDir(filepath.Join(podDir, c.Name()))
		if !c.IsDir() || err != nil {
			continue
		}
		for _, e := range entries {
			fi, err := e.Info()
			if err != nil || !fi.Mode().IsRegular() {
				continue
			}
			f := podFile{path: filepath.Join(podDir, c.Name(), e.Name()), size: fi.Size()}
			if r, ok := ownRotated(e.Name()); ok {
				if r.half {
					continue // being written; it replaces one that is counted
				}
				f.stamp = r.stamp
			}
			if inUse[f.path] {
				f.size = max(f.size, limit)
			}
			files = append(files, f)
		}
	}
	drop, _ := trim(files, m.cfg.PodBudget)
	for _, path := range drop {
		m.drop(path)
	}
}

// ownRotated reads the name of a file that was made of any log, <n>.log.
func ownRotated(name string) (rotated, bool) {
	const suffix = ".log"
	for i := 0; i+len(suffix) < len(name); i++ {
		if name[i:i+len(suffix)] == suffix {
			if r, ok := parseRotated(name[:i+len(suffix)], name); ok {
				return r, true
			}
		}
	}
	return rotated{}, false
}

// pack compresses files, one after the other. What fails stays as it is, and
// is tried again after the next rotation.
func (m *Manager) pack(ctx context.Context, paths []string) {
	if len(paths) == 0 {
		return
	}
	select {
	case m.packing <- struct{}{}:
		defer func() { <-m.packing }()
	case <-ctx.Done():
		return
	}
	for _, path := range paths {
		err := m.compress(ctx, path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && ctx.Err() == nil {
			m.met.unpacked.Inc()
			m.cfg.Log.Warn("a rotated log stays uncompressed", zap.String("path", path), zap.Error(err))
		}
	}
}

// compress puts a compressed file in the place of a file. At any moment one of
// them is whole.
func (m *Manager) compress(ctx context.Context, path string) (err error) {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	fi, err := in.Stat()
	if err != nil {
		return err
	}
	temp := path + unfinished
	out, err := m.create(temp, fi.Mode().Perm())
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = out.Close()
			_ = os.Remove(temp)
		}
	}()
	z, err := gzip.NewWriterLevel(out, gzip.BestSpeed) // logs shrink well by any
	if err != nil {
		return err
	}
	if _, err := io.Copy(z, reader{ctx, in}); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	if err := out.Sync(); err != nil { // or a crash might leave neither
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	// A pod's budget, or its end, may have taken the file meanwhile.
	if _, err := os.Lstat(path); err != nil {
		return err
	}
	if err := os.Rename(temp, path+compressed); err != nil {
		return err
	}
	return os.Remove(path)
}

// reader reads until ctx ends.
type reader struct {
	ctx context.Context
	r   io.Reader
}

// Read reads on.
func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

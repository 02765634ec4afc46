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

	"github.com/nodewright/nodewright/internal/safefile"
)

// The rotation of a log and the compression of what was rotated. The order of the steps is
// chosen for a full disk and for a process that ends between any two of them: space is freed
// before it is needed, whatever a container writes is in a file with a name, and a file is
// removed only when its replacement is whole.

// rotate rotates a log that has reached its limit in bytes, and one that is not there is
// reopened. It returns the files that are to be compressed. It runs in onDisk and uses
// nothing of the watched log, which may be forgotten meanwhile.
func (m *Manager) rotate(ctx context.Context, l Log, limit int64) (pack []string, err error) {
	fi, err := statLog(l.Path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := m.reopen(ctx, l.ID); err != nil {
			return nil, fmt.Errorf("reopen a log that is not there: %w", err)
		}
		fi, err = statLog(l.Path)
	}
	if err != nil {
		return nil, err
	}
	// The size is that of now: the log may have been rotated since the look, or emptied.
	if fi.Size() < limit {
		return nil, nil
	}
	// Held from here on: all steps work on the same directory, whatever a pod does to its
	// path.
	dir, err := openDir(l.Path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	base := filepath.Base(l.Path)
	names, err := fileNames(dir)
	if err != nil {
		return nil, err
	}
	t := plan(base, names, m.cfg.MaxFiles)
	for _, n := range t.drop { // first: there may be no space for anything
		m.drop(dir, n)
	}
	aside := base + "." + nextStamp(t.newest, time.Now())
	// The container goes on writing to the renamed file until the runtime reopens the log,
	// so that no line is lost.
	if err := dir.Rename(base, aside); err != nil {
		return nil, err
	}
	if err := m.reopen(ctx, l.ID); err != nil {
		// An error does not say whether the runtime has acted. A file under the log's name
		// does.
		if _, serr := dir.Lstat(base); errors.Is(serr, fs.ErrNotExist) {
			// The container writes to the renamed file. Were there a new
			// one, the runtime would have made it, and only its answer is
			// lost.
			if rerr := dir.Rename(aside, base); rerr != nil {
				return nil, errors.Join(err, rerr)
			}
			return nil, fmt.Errorf("reopen: %w", err)
		}
	}
	m.met.rotations.WithLabelValues("ok").Inc()
	// A failure in fit is logged and not returned: the log was rotated.
	if m.cfg.PodBudget > 0 {
		m.fit(l.Pod, filepath.Dir(filepath.Dir(l.Path)))
	}
	// Not compressed here: that takes long, and the next rotation of the log must not wait
	// for it.
	for _, n := range t.pack {
		pack = append(pack, filepath.Join(filepath.Dir(l.Path), n))
	}
	return pack, nil
}

// reopen asks the runtime, for no longer than Config.Timeout.
func (m *Manager) reopen(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Timeout)
	defer cancel()
	return m.cfg.Runtime.ReopenContainerLog(ctx, id)
}

// drop removes a file that is not to be kept. A failure is logged: the rotation is worth
// more than the space.
func (m *Manager) drop(dir *safefile.Dir, name string) {
	size := int64(0)
	if fi, err := dir.Lstat(name); err == nil {
		size = fi.Size()
	}
	if err := dir.Remove(name); err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			m.cfg.Log.Warn("an old log stays", zap.Error(err))
		}
		return
	}
	m.met.dropped.Add(float64(size))
}

// fit removes the oldest rotated logs of a pod until all are within its budget, and stay so
// until the next rotation: logs in use count as large as they may become. It looks at the
// disk, and is called in onDisk.
func (m *Manager) fit(pod types.UID, podDir string) {
	inUse := map[string]bool{}
	// m.mu is let go before the disk is looked at, which may not answer.
	m.mu.Lock()
	limit := m.limit(pod)
	for _, w := range m.logs {
		if w.Pod == pod {
			inUse[filepath.Clean(w.Path)] = true
		}
	}
	m.mu.Unlock()
	files, err := podFiles(podDir)
	if err != nil {
		m.cfg.Log.Warn("a pod's logs cannot be listed", zap.Error(err))
		return
	}
	for i := range files {
		if f := &files[i]; inUse[f.path] {
			f.size = max(f.size, limit)
		}
	}
	drop, _ := trim(files, m.cfg.PodBudget)
	for _, path := range drop {
		dir, err := openDir(path)
		if err != nil {
			m.cfg.Log.Warn("an old log stays", zap.Error(err))
			continue
		}
		m.drop(dir, filepath.Base(path))
		_ = dir.Close()
	}
}

// podFiles lists the files of a pod's logs: those in the directories that are
// in its own. It looks at no more than maxNames names.
func podFiles(podDir string) ([]podFile, error) {
	top, err := safefile.OpenDir(filepath.Dir(podDir), filepath.Base(podDir))
	if err != nil {
		return nil, err
	}
	defer func() { _ = top.Close() }()
	containers, err := top.Entries(maxNames)
	if err != nil && !errors.Is(err, safefile.ErrTooMany) {
		return nil, err
	}
	var files []podFile
	// One number for all of the pod's directories: many of them cost no more than a large
	// one.
	left := maxNames
	for _, c := range containers {
		if !c.IsDir() || left <= 0 {
			continue
		}
		here, looked := containerFiles(podDir, c.Name(), left)
		files = append(files, here...)
		left -= looked + 1
	}
	return files, nil
}

// containerFiles lists the files in one directory of a pod, and says how many names it
// looked at. A directory that cannot be opened, as a link that a pod made, has none.
func containerFiles(podDir, container string, limit int) (files []podFile, looked int) {
	dir, err := safefile.OpenDir(filepath.Dir(podDir), filepath.Join(filepath.Base(podDir), container))
	if err != nil {
		return nil, 0
	}
	defer func() { _ = dir.Close() }()
	entries, _ := dir.Entries(limit)
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		// It may be another file by now, or gone.
		fi, err := dir.Lstat(e.Name())
		if err != nil || !fi.Mode().IsRegular() {
			continue
		}
		f := podFile{path: filepath.Join(podDir, container, e.Name()), size: fi.Size()}
		if r, ok := ownRotated(e.Name()); ok {
			if r.half {
				continue // being written; it replaces one that is counted
			}
			f.stamp = r.stamp
		}
		files = append(files, f)
	}
	return files, len(entries)
}

// ownRotated reads the name of a file that was made of any log, <n>.log. The log's own name
// is not known, as that of a dead container is not watched: every ".log" in the name may end
// it.
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

// pack compresses files, one after the other, for Config.Workers logs at a time. What fails
// stays as it is, and is tried again after the next rotation: plan finds it there
// uncompressed.
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
		// The key is the file's path and not the log's: the next look at the log does not
		// wait for this.
		_, err := onDisk(ctx, m, path, packTimeout, func() (struct{}, error) { return struct{}{}, m.compress(ctx, path) })
		if err != nil && !errors.Is(err, fs.ErrNotExist) && ctx.Err() == nil {
			m.met.unpacked.Inc()
			m.cfg.Log.Warn("a rotated log stays uncompressed", zap.String("path", path), zap.Error(err))
		}
	}
}

// compress puts a compressed file in the place of a file. At any moment one of them is
// whole. An error that is fs.ErrNotExist says that the file is gone or was replaced, which
// is no fault.
func (m *Manager) compress(ctx context.Context, path string) (err error) {
	dir, err := openDir(path)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	name := filepath.Base(path)
	in, err := dir.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	fi, err := in.Stat()
	if err != nil {
		return err
	}
	// A pod may have put any file there, also a sparse one of any size.
	if fi.Size() > maxPacked {
		return fmt.Errorf("file has %d bytes; want at most %d", fi.Size(), int64(maxPacked))
	}
	// The name marks it as half: plan drops it after a crash, and nobody reads it.
	temp := name + unfinished
	// Whoever could read the log can read the compressed one, and nobody else.
	out, err := m.create(dir, temp, fi.Mode().Perm())
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = out.Close()
			_ = dir.Remove(temp)
		}
	}()
	z, err := gzip.NewWriterLevel(out, gzip.BestSpeed) // logs shrink well by any
	if err != nil {
		return err
	}
	// One byte more than there was: a file that still grows is not done, and the copy must
	// come to an end.
	switch n, err := io.Copy(z, io.LimitReader(reader{ctx, in}, fi.Size()+1)); {
	case err != nil:
		return err
	case n > fi.Size():
		return errors.New("somebody writes to the file")
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
	if now, err := dir.Lstat(name); err != nil || !os.SameFile(now, fi) {
		return errors.Join(err, fs.ErrNotExist)
	}
	// A crash between these two leaves both, of which plan drops the uncompressed one.
	if err := dir.Rename(temp, name+compressed); err != nil {
		return err
	}
	return dir.Remove(name)
}

// reader reads until ctx ends: a compression of gigabytes must not keep the process from
// ending.
type reader struct {
	ctx context.Context
	r   io.Reader
}

// Read reads on, or returns the error of ctx.
func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

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

// The rotation of a log and the compression of rotated files. The order of the steps works on a
// full disk and survives a crash: space is freed before it is needed, a container always writes
// to a named file, and a file is removed only when its replacement is complete.

// rotate rotates a log that has reached its limit in bytes. If the log is missing, rotate makes
// the runtime reopen it. It returns the files to compress. It runs in onDisk and does not use the
// watched log, which may be forgotten meanwhile.
func (m *Manager) rotate(ctx context.Context, l Log, limit int64) (pack []string, err error) {
	fi, err := statLog(l.Path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := m.reopen(ctx, l.ID); err != nil {
			return nil, fmt.Errorf("reopen a log that does not exist: %w", err)
		}
		fi, err = statLog(l.Path)
	}
	if err != nil {
		return nil, err
	}
	// Checked again: the log may have been rotated or truncated since.
	if fi.Size() < limit {
		return nil, nil
	}
	// All steps use the opened directory, since a pod may change its path.
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
	for _, n := range t.drop { // first: the disk may be full
		m.drop(dir, n)
	}
	aside := base + "." + nextStamp(t.newest, time.Now())
	// The container writes to the renamed file until the runtime reopens the log, so no line is
	// lost.
	if err := dir.Rename(base, aside); err != nil {
		return nil, err
	}
	if err := m.reopen(ctx, l.ID); err != nil {
		// After an error, a file with the log's name shows that the runtime has reopened the
		// log.
		if _, serr := dir.Lstat(base); errors.Is(serr, fs.ErrNotExist) {
			// The container still writes to the renamed file.
			if rerr := dir.Rename(aside, base); rerr != nil {
				return nil, errors.Join(err, rerr)
			}
			return nil, fmt.Errorf("reopen log: %w", err)
		}
	}
	// fit only logs its errors, since the log was rotated.
	if m.cfg.PodBudget > 0 {
		m.fit(l.Pod, filepath.Dir(filepath.Dir(l.Path)))
	}
	// Compression takes long, so the caller does it after the rotation.
	for _, n := range t.pack {
		pack = append(pack, filepath.Join(filepath.Dir(l.Path), n))
	}
	return pack, nil
}

// reopen calls Runtime.ReopenContainerLog within callTimeout.
func (m *Manager) reopen(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return m.cfg.Runtime.ReopenContainerLog(ctx, id)
}

// drop removes a file. An error is logged: the rotation continues.
func (m *Manager) drop(dir *safefile.Dir, name string) {
	if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.cfg.Log.Warn("failed to remove old log", zap.Error(err))
	}
}

// fit removes the oldest rotated logs of a pod until all its logs are within the budget. A log in
// use counts with its limit, so that the budget is kept until the next rotation. The caller runs
// fit inside onDisk.
func (m *Manager) fit(pod types.UID, podDir string) {
	inUse := map[string]bool{}
	// m.mu is released before the disk is accessed.
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
		m.cfg.Log.Warn("failed to list logs of pod", zap.Error(err))
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
			m.cfg.Log.Warn("failed to remove old log", zap.Error(err))
			continue
		}
		m.drop(dir, filepath.Base(path))
		_ = dir.Close()
	}
}

// podFiles lists the log files in the subdirectories of a pod's log directory. It reads at most
// maxNames names.
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
	// One limit for all directories of the pod.
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

// containerFiles lists the log files in one directory of a pod, and returns the number of names
// that it read. A directory that cannot be opened, such as a link, counts as empty.
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
		// The file may have been replaced or removed.
		fi, err := dir.Lstat(e.Name())
		if err != nil || !fi.Mode().IsRegular() {
			continue
		}
		f := podFile{path: filepath.Join(podDir, container, e.Name()), size: fi.Size()}
		if r, ok := ownRotated(e.Name()); ok {
			if r.half {
				continue // unfinished; the original is counted
			}
			f.stamp = r.stamp
		}
		files = append(files, f)
	}
	return files, len(entries)
}

// ownRotated parses the name of a rotated file of any log, <n>.log. For dead containers the name of
// the log is not known, so any ".log" in the file's name may be the end of the log's name.
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

// pack compresses files one after the other, for at most Config.Workers logs at a time. A failed
// compression is tried again after the next rotation.
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
		// The key is the file's path, so that checks of the log do not wait for the compression.
		_, err := onDisk(ctx, m, path, packTimeout, func() (struct{}, error) { return struct{}{}, m.compress(ctx, path) })
		if err != nil && !errors.Is(err, fs.ErrNotExist) && ctx.Err() == nil {
			m.cfg.Log.Warn("failed to compress rotated log", zap.String("path", path), zap.Error(err))
		}
	}
}

// compress replaces a file by a compressed one. At any moment one of them is complete. An
// fs.ErrNotExist error means that the file is gone or was replaced, which is harmless.
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
	// A pod may have created a file of any size.
	if fi.Size() > maxPacked {
		return fmt.Errorf("file has %d bytes; want at most %d", fi.Size(), int64(maxPacked))
	}
	// The name marks it as unfinished: plan removes it after a crash.
	temp := name + unfinished
	// The compressed file gets the permissions of the log.
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
	// One more byte detects a file that still grows.
	switch n, err := io.Copy(z, io.LimitReader(reader{ctx, in}, fi.Size()+1)); {
	case err != nil:
		return err
	case n > fi.Size():
		return errors.New("another process writes to the file")
	}
	if err := z.Close(); err != nil {
		return err
	}
	if err := out.Sync(); err != nil { // before the original is removed
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	// The file may have been removed meanwhile.
	if now, err := dir.Lstat(name); err != nil || !os.SameFile(now, fi) {
		return errors.Join(err, fs.ErrNotExist)
	}
	// A crash in between leaves both files; plan removes the uncompressed one.
	if err := dir.Rename(temp, name+compressed); err != nil {
		return err
	}
	return dir.Remove(name)
}

// reader reads until ctx ends, so that a large compression does not delay the end of the
// process.
type reader struct {
	ctx context.Context
	r   io.Reader
}

// Read reads, or returns the error of ctx.
func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

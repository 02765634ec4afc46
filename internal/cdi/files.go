//go:build linux

package cdi

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/nodewright/nodewright/internal/callerror"
	"github.com/nodewright/nodewright/internal/safefile"
)

// identity changes if a file is replaced or written to.
type identity struct {
	device, inode uint64
	size          int64
	modified      time.Time
	changed       syscall.Timespec
}

// file is what was read from a file: a specification or an error.
type file struct {
	identity identity
	settled  bool // the file is old enough for identity to show any later change
	spec     *specs.Spec
	err      error // why the file is ignored
}

// settle is the age from which a later change of a file always changes its time. It is
// longer than the coarsest timestamps of a file system, those of FAT.
const settle = 2 * time.Second

// devices reads the specifications of all directories.
func (r *Registry) devices() *devices {
	r.mu.Lock()
	known := r.files
	r.mu.Unlock()
	found, files := &devices{byName: map[string]*device{}}, map[string]file{}
	left := int64(maxTotal)
	for priority, dir := range r.cfg.Dirs {
		names, resolved, err := list(dir)
		if err != nil {
			files[dir] = file{err: err}
			continue
		}
		for _, name := range names {
			path := filepath.Join(dir, name)
			f := read(filepath.Join(resolved, name), known[path], &left)
			files[path] = f
			if f.err == nil {
				found.add(path, priority, f.spec)
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if err := files[path].err; err != nil {
			found.refused = append(found.refused, path+": "+short(err))
			if old := known[path].err; old == nil || old.Error() != err.Error() {
				r.cfg.Log.Warn("set aside CDI specification", zap.String("path", path), zap.String("reason", short(err)))
			}
		}
	}
	r.mu.Lock()
	r.files = files // if two calls run at once, either may be the last
	r.mu.Unlock()
	return found
}

// maxReason is the length to which the reason for ignoring a file is cut, in bytes: the parser
// reports each unknown field on a line of its own.
const maxReason = 300

func short(err error) string {
	return callerror.Cut(strings.Join(strings.Fields(err.Error()), " "), maxReason)
}

// list returns the sorted names of the specifications in a directory. resolved is the directory's
// path with links resolved. If the directory does not exist, there are no names.
func list(dir string) (names []string, resolved string, err error) {
	resolved, err = filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	if err := Trusted(resolved); err != nil {
		return nil, "", err
	}
	entries, err := safefile.Entries(resolved, maxFiles)
	if err != nil {
		return nil, "", err
	}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); !e.IsDir() && (ext == ".json" || ext == ".yaml") {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, resolved, nil
}

// read reads a specification. If the file has not changed since known was read, it returns known.
// It decrements *left, the number of bytes that may still be read.
func read(path string, known file, left *int64) file {
	f, err := open(path)
	if err != nil {
		return file{err: err}
	}
	defer func() { _ = f.Close() }()
	now := time.Now()
	before, err := identify(f)
	if err != nil {
		return file{err: err}
	}
	if before.size > *left {
		return file{err: fmt.Errorf("specifications have more than %d bytes in all", maxTotal)}
	}
	*left -= before.size
	if known.settled && known.identity == before {
		return known
	}
	text, err := safefile.Read(f, min(maxFile, before.size))
	if err != nil {
		return file{err: err}
	}
	if after, err := identify(f); err != nil || after != before {
		return file{err: errors.Join(errors.New("file was written to while it was read"), err)}
	}
	out := file{identity: before, settled: now.Sub(before.modified) > settle && now.Sub(time.Unix(before.changed.Unix())) > settle}
	out.spec, out.err = parse(text)
	return out
}

// open opens a regular file that only root, or the user of this process, can write. A symbolic
// link may lead to any such file.
func open(path string) (*os.File, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	if err := Trusted(filepath.Dir(resolved)); err != nil {
		return nil, err
	}
	f, err := safefile.Open(resolved)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = ownedSafely(resolved, info)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func identify(f *os.File) (identity, error) {
	info, err := f.Stat()
	if err != nil {
		return identity{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{}, &fs.PathError{Op: "stat", Path: f.Name(), Err: errors.ErrUnsupported}
	}
	return identity{uint64(st.Dev), st.Ino, info.Size(), info.ModTime(), st.Ctim}, nil //nolint:unconvert // Dev has 32 bits elsewhere
}

// Trusted returns an error if another user than root or the user of this process can replace
// files in a directory, or in one of its parents. No part of the path may be a link.
func Trusted(dir string) error {
	for at := dir; ; at = filepath.Dir(at) {
		info, err := os.Lstat(at)
		if err != nil {
			return err
		}
		if !info.IsDir() {
			return &fs.PathError{Op: "read", Path: at, Err: syscall.ENOTDIR}
		}
		// In a directory with the sticky bit, like /tmp, users can create entries, but
		// cannot replace entries of other users.
		if info.Mode()&fs.ModeSticky == 0 || at == dir {
			err = ownedSafely(at, info)
		} else {
			err = ownedBy(at, info)
		}
		if err != nil || at == filepath.Dir(at) {
			return err
		}
	}
}

func ownedSafely(path string, info fs.FileInfo) error {
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s has mode %v; want it writable by its owner alone", path, info.Mode())
	}
	return ownedBy(path, info)
}

func ownedBy(path string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return &fs.PathError{Op: "stat", Path: path, Err: errors.ErrUnsupported}
	}
	if st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d; want root", path, st.Uid)
	}
	return nil
}

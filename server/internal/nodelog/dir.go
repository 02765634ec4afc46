package nodelog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/internal/slowfile"
)

// dir is a directory whose files are served. A path that leads out of it, even by a link, is
// refused.
type dir string

const (
	// answer limits how long a request waits for one call to the file system, which usually takes
	// milliseconds, or seconds under load.
	answer = 10 * time.Second
	// maxNames limits the listed names of a directory.
	maxNames = 10_000
)

// calls runs the file system calls of all requests. For each path only one call runs at
// a time.
var calls = &detached.Queue{}

func (d dir) system(ctx context.Context, name string) *slowfile.System {
	return &slowfile.System{Context: ctx, Calls: calls, Key: filepath.Join(string(d), filepath.FromSlash(name)), Answer: answer}
}

// find resolves a name relative to the directory, and describes the file. Links, absolute or not,
// are followed if they stay below the directory.
func (d dir) find(name string) (base, within string, info fs.FileInfo, err error) {
	missing := &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	if !fs.ValidPath(name) {
		return "", "", nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	if base, err = filepath.EvalSymlinks(string(d)); err != nil {
		return "", "", nil, missing
	}
	real, err := filepath.EvalSymlinks(filepath.Join(base, filepath.FromSlash(name)))
	if err != nil {
		return "", "", nil, missing
	}
	if within, err = filepath.Rel(base, real); err != nil || !filepath.IsLocal(within) {
		return "", "", nil, missing
	}
	root, err := os.OpenRoot(base)
	if err != nil {
		return "", "", nil, missing
	}
	defer func() { _ = root.Close() }()
	info, err = root.Lstat(within)
	return base, within, info, err
}

// open opens a regular file below the directory. It returns nil without an error if name is a
// directory. Even if the path changes during the call, it opens no file outside of the directory.
func (d dir) open(ctx context.Context, name string) (*slowfile.File, error) {
	directory := errors.New("directory")
	f, err := d.system(ctx, name).Open(func() (*os.File, error) {
		base, within, info, err := d.find(name)
		switch {
		case err != nil:
			return nil, err
		case info.IsDir():
			return nil, directory
		}
		f, err := safefile.OpenIn(base, within)
		if errors.Is(err, safefile.ErrNotRegular) {
			err = fmt.Errorf("%w: %w", fs.ErrPermission, err)
		}
		return f, err
	})
	if errors.Is(err, directory) {
		return nil, nil
	}
	return f, err
}

// list lists a directory, sorted. Names of directories end in a slash.
func (d dir) list(ctx context.Context, name string) ([]string, error) {
	return slowfile.Call(d.system(ctx, name), func() ([]string, error) {
		base, within, _, err := d.find(name)
		if err != nil {
			return nil, err
		}
		held, err := safefile.OpenDir(base, within)
		if err != nil {
			return nil, err
		}
		defer func() { _ = held.Close() }()
		entries, err := held.Entries(maxNames)
		if err != nil && !errors.Is(err, safefile.ErrTooMany) {
			return nil, err
		}
		var names []string
		for _, e := range entries {
			n := e.Name()
			if e.IsDir() {
				n += "/"
			}
			names = append(names, n)
		}
		slices.Sort(names)
		return names, nil
	})
}

// regular opens the file that a query names. It must be a regular file.
func (d dir) regular(ctx context.Context, name string) (*slowfile.File, error) {
	name = strings.ReplaceAll(name, `\`, "/")
	clean := strings.TrimPrefix(path.Clean(name), "/")
	if !filepath.IsLocal(filepath.FromSlash(clean)) {
		return nil, fmt.Errorf("query has the file %.64q; want one below the directory of logs", name)
	}
	f, err := d.open(ctx, clean)
	if err != nil {
		return nil, fmt.Errorf("query has the file %.64q: %w", name, err)
	}
	if f == nil {
		return nil, fmt.Errorf("query has %.64q; want a file", name)
	}
	return f, nil
}

package atomicdir

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of the kernel, in bytes: PATH_MAX and NAME_MAX of linux/limits.h.
const (
	maxPath = 4096
	maxName = 255
)

// ErrPath is wrapped by errors about invalid paths.
var ErrPath = errors.New("path is not allowed")

// File is one file of a payload.
type File struct {
	Data []byte
	// Mode holds the permission bits; others are ignored.
	Mode fs.FileMode
	// UID owns the file and the link to it. If it is nil, the user of the process owns them.
	UID *int64
}

// Payload is a set of files by relative path, with slashes as separators. It is not modified.
type Payload map[string]File

// Clean checks every path and returns the payload under cleaned paths: "a/./b//c" becomes
// "a/b/c".
//
// A path must be relative UTF-8 without NUL and not empty. It may have 4096 bytes, and each
// element 255. It must neither contain the element ".." nor begin with "..". Two files must not
// have the same path, and no file may be where another needs a directory.
//
// The error has all mistakes. The data is shared with p.
func (p Payload) Clean() (Payload, error) {
	out := make(Payload, len(p))
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(p)) {
		if err := CheckPath(name); err != nil {
			errs = append(errs, err)
			continue
		}
		c := path.Clean(name)
		if _, twice := out[c]; twice {
			errs = append(errs, fmt.Errorf("%w: %q: another file has the same path %q", ErrPath, name, c))
			continue
		}
		out[c] = p[name]
	}
	for _, name := range slices.Sorted(maps.Keys(out)) {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, ok := out[dir]; ok {
				errs = append(errs, fmt.Errorf("%w: %q: %q is a file", ErrPath, name, dir))
			}
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return out, nil
}

// CheckPath returns an [ErrPath] if a path of a payload is invalid. The path need not be cleaned.
func CheckPath(p string) error {
	switch {
	case p == "":
		return fmt.Errorf("%w: it is empty", ErrPath)
	case len(p) > maxPath:
		return fmt.Errorf("%w: %.40q... has %d bytes, at most %d are allowed", ErrPath, p, len(p), maxPath)
	case !utf8.ValidString(p):
		return fmt.Errorf("%w: %q is not UTF-8", ErrPath, p)
	case strings.ContainsRune(p, 0):
		return fmt.Errorf("%w: %q contains a NUL", ErrPath, p)
	case path.IsAbs(p):
		return fmt.Errorf("%w: %q is absolute; want a relative path", ErrPath, p)
	}
	for e := range strings.SplitSeq(p, "/") {
		switch {
		case e == "..":
			return fmt.Errorf("%w: %q contains the element \"..\"", ErrPath, p)
		case len(e) > maxName:
			return fmt.Errorf("%w: %.40q... has an element of %d bytes, at most %d are allowed", ErrPath, p, len(e), maxName)
		}
	}
	switch c := path.Clean(p); {
	case c == ".":
		return fmt.Errorf("%w: %q names no file", ErrPath, p)
	case strings.HasPrefix(c, ".."):
		return fmt.Errorf("%w: %q begins with \"..\"", ErrPath, p)
	}
	return nil
}

// tops returns the first elements of the paths. The value is the owner of the link, which is the
// owner of the first file below it by name.
func (p Payload) tops() map[string]*int64 {
	out := make(map[string]*int64)
	for _, name := range slices.Sorted(maps.Keys(p)) {
		top, _, _ := strings.Cut(name, "/")
		if _, ok := out[top]; !ok {
			out[top] = p[name].UID
		}
	}
	return out
}

// dirs returns the directories of the files and those in more, parents first, without the root.
func (p Payload) dirs(more []string) []string {
	set := make(map[string]bool)
	for name := range p {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			set[dir] = true
		}
	}
	for _, dir := range more {
		for dir = path.Clean(dir); dir != "."; dir = path.Dir(dir) {
			set[dir] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

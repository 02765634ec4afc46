package mount

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"
)

// Limits of the kernel, in bytes: PATH_MAX and NAME_MAX of linux/limits.h.
const (
	maxPath = 4096
	maxName = 255
)

var (
	// ErrOutside means that a path leads out of its base directory.
	ErrOutside = errors.New("leads out of the volume")
	// ErrSymlink means that a path contains a symbolic link where none is allowed.
	ErrSymlink = errors.New("path contains a symbolic link")
)

// checkSubPath returns an error if a pod's subPath is invalid. It must be relative
// UTF-8 without "..", without NUL, and not longer than the kernel's limit.
func checkSubPath(subPath string) error {
	show := subPath
	if len(show) > 40 {
		show = show[:40] + "..."
	}
	switch {
	case !utf8.ValidString(subPath):
		return fmt.Errorf("subPath %q is not UTF-8", show)
	case strings.ContainsRune(subPath, 0):
		return fmt.Errorf("subPath %q contains a NUL", show)
	case path.IsAbs(subPath):
		return fmt.Errorf("subPath %q is absolute; want a relative path", show)
	case len(subPath) >= maxPath:
		return fmt.Errorf("subPath %q has %d bytes, at most %d are allowed", show, len(subPath), maxPath-1)
	}
	elements := strings.Split(subPath, "/")
	if slices.Contains(elements, "..") {
		return fmt.Errorf("subPath %q contains the element \"..\"", show)
	}
	for _, e := range elements {
		if len(e) > maxName {
			return fmt.Errorf("subPath %q has an element of %d bytes, at most %d are allowed", show, len(e), maxName)
		}
	}
	return nil
}

// SubPathError is the error for a subPath that could not be mounted. Its text has no path of the
// node.
type SubPathError struct {
	Volume, SubPath string
	Err             error // the cause; its text may have paths
}

// Error names the volume, the subPath and the kind of cause.
func (e *SubPathError) Error() string {
	text := "cannot be prepared"
	var errno syscall.Errno
	switch {
	case errors.Is(e.Err, ErrOutside):
		text = ErrOutside.Error()
	case errors.Is(e.Err, ErrSymlink):
		text = ErrSymlink.Error()
	case errors.As(e.Err, &errno):
		text = errno.Error()
	case errors.Is(e.Err, fs.ErrNotExist):
		text = fs.ErrNotExist.Error()
	}
	return fmt.Sprintf("subPath %q of volume %q: %s", e.SubPath, e.Volume, text)
}

// Unwrap returns the cause.
func (e *SubPathError) Unwrap() error { return e.Err }

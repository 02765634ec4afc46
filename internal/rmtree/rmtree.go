// Package rmtree removes directory trees. It never removes files behind a mount
// point or a symbolic link.
//
//	err := rmtree.Remove("/var/lib/agent/pods/uid/volumes/kubernetes.io~empty-dir/scratch")
//	if errors.Is(err, rmtree.ErrMountPoint) {
//		// something is mounted there or below; it is untouched
//	}
//
// os.RemoveAll enters mount points: it deletes the content of a mounted file system
// before it fails to remove the mount point. This package has the kernel refuse to
// cross a mount point (openat2(2), RESOLVE_NO_XDEV). That also holds for bind
// mounts of the same file system, and leaves no time between a check and the
// removal. On kernels without openat2 (before 5.6) it detects only mounts of other
// file systems.
//
// After an error it continues with the rest of the tree, and returns all errors.
// Links are removed and not followed. Trees may have any depth.
package rmtree

import "errors"

// ErrMountPoint means that the directory, or a directory below it, is a mount
// point.
var ErrMountPoint = errors.New("the directory contains a mount point")

// ErrNotEmpty means that RemoveDirs has found another file than a directory.
var ErrNotEmpty = errors.New("not only directories")

// Remove removes the file or directory dir, and everything below it. A missing dir
// is not an error.
func Remove(dir string) error { return remove(dir, false) }

// RemoveDirs removes dir and everything below it if there are only directories. Other files stay,
// with their parents, and the error is then ErrNotEmpty. It is not an error if dir does not
// exist.
func RemoveDirs(dir string) error { return remove(dir, true) }

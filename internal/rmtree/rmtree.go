// Package rmtree removes directory trees. It never removes files behind a mount
// point or a symbolic link.
//
//	err := rmtree.Remove("/var/lib/agent/pods/uid/volumes/kubernetes.io~empty-dir/scratch")
//	if errors.Is(err, rmtree.ErrMountPoint) {
//		// there is a mount in the tree; the mounted files still exist
//	}
//
// os.RemoveAll enters mount points: it deletes the content of a mounted file system
// before it fails to remove the mount point. This package opens directories so that the
// kernel refuses to cross a mount point (openat2(2), RESOLVE_NO_XDEV). This also works for
// bind mounts of the same file system, and without a race between a check and the removal.
// On kernels without openat2 (before 5.6) the package detects only mounts of other file
// systems.
//
// After an error the functions continue with the rest of the tree. They return the first
// errors and the number of the others. They remove links and do not follow them. Trees may
// have any depth.
package rmtree

import "errors"

// ErrMountPoint means that the directory, or a directory below it, is a mount
// point.
var ErrMountPoint = errors.New("the directory contains a mount point")

// ErrNotEmpty means that RemoveDirs has found a file that is not a directory.
var ErrNotEmpty = errors.New("not only directories")

// Remove removes the file or directory dir, and everything below it. It returns nil if
// dir does not exist.
func Remove(dir string) error { return remove(dir, false) }

// RemoveDirs removes dir and all directories below it, except those that contain other files. If
// there are such files, it keeps them and returns ErrNotEmpty. It returns nil if dir does not exist.
func RemoveDirs(dir string) error { return remove(dir, true) }

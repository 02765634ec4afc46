// Package rmtree removes directories without ever reaching what lies behind a
// mount point or a symbolic link.
//
//	err := rmtree.Remove("/var/lib/agent/pods/uid/volumes/kubernetes.io~empty-dir/scratch")
//	if errors.Is(err, rmtree.ErrMountPoint) {
//		// something is mounted there or below; it is untouched
//	}
//
// os.RemoveAll walks through mount points: a directory with somebody's file
// system mounted in it is emptied, file system and all, before the removal of
// the mount point itself fails. Here the kernel is told to refuse the step
// (openat2(2), RESOLVE_NO_XDEV), which holds for bind mounts of the same file
// system too and leaves no time between a check and the deed. On kernels
// without openat2 (before 5.6) only mounts of other file systems are noticed.
//
// What can be removed is removed even if something else cannot, and every
// error is returned. Links are removed, never followed. Trees may be of any
// depth.
package rmtree

import "errors"

// ErrMountPoint means that something is mounted on the directory or below it.
var ErrMountPoint = errors.New("a mount point is in the way")

// ErrNotEmpty means that RemoveDirs met something other than a directory.
var ErrNotEmpty = errors.New("not only directories")

// Remove removes dir, whatever it is, and everything below it. What does not
// exist is no error.
func Remove(dir string) error { return remove(dir, false) }

// RemoveDirs removes dir and everything below it as far as these are
// directories. Anything else stays, with the directories that it is in, and is
// an ErrNotEmpty. What does not exist is no error.
func RemoveDirs(dir string) error { return remove(dir, true) }

// Package fsgroup gives the files of a volume to a group (securityContext.fsGroup
// of a pod).
//
//	err := fsgroup.Apply(ctx, fsgroup.Request{
//		Root: volumePath, GID: 2000, OnRootMismatch: true,
//		Progress: func(files int64, first bool) { ... },
//	})
//
// Every file and directory gets the group; files may be read and written by it,
// directories entered too, and what is made in them later inherits the group
// (the setgid bit). In a read-only volume the group may not write. Symbolic
// links get the group and are not followed. What is right already is left
// alone, so that its change time stays.
//
// # Faults
//
// Children come before their directory, and the root last: a walk that is
// interrupted, by an error, by ctx or by a crash, leaves a root that does not
// match, and the next one starts over even with OnRootMismatch. Errors of single
// files do not stop the walk, but keep it from reaching the root; the first few
// are returned with how many there were. The walk works by descriptors: no link
// that appears in the volume meanwhile leads it out. It does not enter what is
// mounted below the root. Volumes may be of any width and 65,536 levels deep: a
// walk takes less than 30 descriptors and 4 MiB.
package fsgroup

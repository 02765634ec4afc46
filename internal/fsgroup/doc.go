// Package fsgroup changes the group of a volume's files (securityContext.fsGroup of
// a pod).
//
//	err := fsgroup.Apply(ctx, fsgroup.Request{
//		Root: volumePath, GID: 2000, OnRootMismatch: true,
//		Progress: func(files int64, first bool) { ... },
//	})
//
// Every file and directory gets the group. The group may read and write files, and
// also enter directories; new files in a directory inherit its group (the setgid
// bit). In a read-only volume the group may not write. Symbolic links get the group
// and are not followed. Files with the right group and mode are not changed, so
// that their change times stay.
//
// # Faults
//
// Children are changed before their directory, and the root last. If a walk is
// interrupted by an error, by ctx or by a crash, the root does not have the group yet,
// so that the next walk starts over even with OnRootMismatch. After errors of single
// files the walk continues, but does not change the root. It returns the first few
// errors and their number. The walk uses descriptors: no link in the volume can lead it
// out. It does not enter mounts below the root. Volumes may have any width and 65,536
// levels; a walk uses less than 30 descriptors and 4 MiB.
package fsgroup

// Package fsgroup changes the group of a volume's files (securityContext.fsGroup of
// a pod).
//
//	err := fsgroup.Apply(ctx, fsgroup.Request{
//		Root: volumePath, GID: 2000, OnRootMismatch: true,
//		Progress: func(files int64, first bool) { ... },
//	})
//
// [Apply] gives the group to every file and directory. The group may read and write files
// and enter directories. New files in a directory inherit its group (the setgid bit). In a
// read-only volume the group may not write. Symbolic links get the group and are not
// followed. Files that have the right group and mode are not changed, so that they keep
// their change times.
//
// # Faults
//
// Apply changes children before their directory, and the root last. If an error, ctx or a
// crash interrupts a walk, the root does not have the group yet, so that the next walk
// starts over even with OnRootMismatch. After errors of single files the walk continues,
// but leaves the root and the directories above these files unchanged. Apply then returns
// the first five errors and the number of the others. The walk uses descriptors: it cannot
// follow a link out of the volume. It does not enter mounts below the root. A volume may
// have any width and 65,536 levels; a walk uses less than 30 descriptors and 4 MiB of
// memory.
package fsgroup

// Package mount mounts and unmounts, and reads what is mounted.
//
//	var k mount.Kernel
//	err := k.Mount(ctx, mount.FileSystem{Type: "tmpfs", Source: "tmpfs", Target: dir, Options: []string{"size=65536"}})
//	...
//	err = k.Bind(ctx, mount.Bind{Source: "/srv/data", Target: dir, ReadOnly: true})
//	...
//	err = mount.Clean(ctx, &k, dir) // unmount everything at dir, then remove the empty directory
//
// [Mounter] is the interface for other packages. [Kernel] implements it; package mounttest
// implements it in memory, with failures on demand.
//
// If the last element of a target is a symbolic link, the mount is refused. A source may be an
// open file, so that the file that was checked is the one that is mounted.
//
// # Bind mounts
//
// A bind mount keeps the flags of its source (nosuid, nodev, read-only, ...) and gets the
// requested ones in addition. With the mount API of Linux 5.12 it is created detached and becomes
// visible when it is complete. On older kernels it is bound and then remounted, and unmounted
// again if that fails. Read-only mounts with [Bind.Recursive] need the API.
//
// # Faults
//
// A failed mount leaves nothing mounted. Unmounting a path that is not mounted returns
// [ErrNotMounted]. [Clean] removes a directory only if it is empty and not a mount point; it
// removes nothing else.
//
// Network file systems are mounted by the mount program and its helpers, in a process that is
// killed at the deadline. A call that blocks in the kernel is abandoned with its thread; the
// caller gets the context's error.
//
// All methods are safe for concurrent use.
//
// # Paths within a volume
//
// [SubPathBinder] mounts a part of a volume for a container, by a path that the container's own
// processes may change at any moment.
//
//	b, err := mount.NewSubPathBinder(mount.SubPathConfig{Mounter: &mount.Kernel{}})
//	if err != nil {
//		return err
//	}
//	hostPath, err := b.Bind(ctx, mount.SubPathRequest{
//		PodDir: podDir, Volume: "data", VolumePath: volumePath,
//		Container: "web", Index: 2, SubPath: "tenants/a",
//	})
//	...
//	err = b.Clean(ctx, podDir, "data") // when the volume is unmounted
//
// A path that leads out of the volume, directly or by symbolic links, is refused. The path is
// resolved once. The result is opened from the volume's root downwards without following links,
// and the open file is mounted at
//
//	PodDir/volume-subpaths/VOLUME/CONTAINER/INDEX
//
// A link that appears after the check causes an error, never another directory in the container.
//
// [SubPathWalk] opens and creates directories below a root. It uses openat2(2); on kernels before
// 5.6 it opens one element after the other.
//
// # Paths within a volume: faults
//
// Bind and Clean may fail, or their process may end, at any step; call them again. A failed Bind
// leaves no mount and no target. Clean removes mounts, empty directories and empty files, never
// content.
//
// Errors name volume and subPath but no path of the node, since the pod's owner can read them.
// errors.As finds the cause.
//
// Tier: beta.
package mount

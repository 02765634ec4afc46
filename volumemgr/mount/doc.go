// Package mount mounts and unmounts, and reads what is mounted.
//
//	var k mount.Kernel
//	err := k.Mount(ctx, mount.FileSystem{Type: "tmpfs", Source: "tmpfs", Target: dir, Options: []string{"size=65536"}})
//	...
//	err = k.Bind(ctx, mount.Bind{Source: "/srv/data", Target: dir, ReadOnly: true})
//	...
//	err = mount.Clean(ctx, &k, dir) // unmount all that is there, then remove the empty directory
//
// [Mounter] is what other packages take; [Kernel] is the real one, and package
// mounttest has one in memory that fails on demand.
//
// The last element of a target is never followed if it is a symbolic link: the
// mount is refused. A source may be given as an open file, so that what was
// checked is what is mounted.
//
// # Bind mounts
//
// A bind mount keeps the flags of its source (nosuid, nodev, read-only, ...) and
// gets the wanted ones on top. Where the kernel has the mount API of Linux
// 5.12 it is made aside and appears complete; elsewhere it is bound and then
// remounted, and unbound again should that fail. [Bind.Recursive] read-only
// mounts need the former.
//
// # Faults
//
// A mount that fails leaves nothing mounted. Unmounting what is not mounted is
// [ErrNotMounted]. Nothing here removes files: [Clean] removes a directory only
// if it is empty and nothing is mounted there.
//
// File systems of a network go through the mount program and its helpers, in a
// process of their own that is killed at the deadline. A call that the kernel
// does not let go is left behind in its thread; the caller gets the context's
// error.
//
// All methods may be called from any goroutine.
//
// # Paths within a volume
//
// [SubPathBinder] gives a container a part of a volume, by a path that the
// container's own processes may change at any moment.
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
// What leads out of the volume is refused, symbolic links included. The path is
// resolved once; what came of it is opened from the volume's root downwards
// without following a single link, and the open file is what is mounted at
//
//	PodDir/volume-subpaths/VOLUME/CONTAINER/INDEX
//
// A link that appears after the check makes an error or nothing; it never makes
// another directory appear in the container.
//
// [SubPathWalk] has the parts: opening and making directories below a root. It uses
// openat2(2), and walks from descriptor to descriptor on kernels before 5.6.
//
// # Paths within a volume: faults
//
// Bind and Clean may fail or their process may die at any step, and are simply
// called again. A Bind that fails leaves no mount and no target. Clean removes
// mounts, empty directories and empty files; never content.
//
// Errors name volume and subPath and not where they are on the node: they are
// shown to the pod's owner. What is behind them is found with errors.As.
//
// Tier: beta.
package mount

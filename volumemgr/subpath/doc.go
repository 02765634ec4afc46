// Package subpath gives a container a part of a volume, by a path that the
// container's own processes may change at any moment.
//
//	b, err := subpath.New(subpath.Config{Mounter: &mount.Kernel{}})
//	if err != nil {
//		return err
//	}
//	hostPath, err := b.Bind(ctx, subpath.Request{
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
// [Walk] has the parts: opening and making directories below a root. It uses
// openat2(2), and walks from descriptor to descriptor on kernels before 5.6.
//
// # Faults
//
// Bind and Clean may fail or their process may die at any step, and are simply
// called again. A Bind that fails leaves no mount and no target. Clean removes
// mounts, empty directories and empty files; never content.
//
// Errors name volume and subPath and not where they are on the node: they are
// shown to the pod's owner. What is behind them is found with errors.As.
//
// Tier: beta.
package subpath

// Package rootless lets an ordinary user run a node.
//
//	if err := rootless.Enter(ctx, rootless.Config{RootDir: rootDir}); err != nil { // first thing in main
//		return err
//	}
//
// [Enter] returns nil at once for root. For another user it replaces the process by itself in
// namespaces in which the user is root: a user, mount, network and cgroup namespace. The rest of the
// program is the same for both.
//
// # Holder
//
// The namespaces belong to a process of their own, the holder, which sleeps. There is one for each
// root directory. The holder and the pods go on while the agent is killed, restarted or upgraded,
// and the next agent enters the same namespaces. Package rootless finds the holder by a record below
// the root directory. If the holder has ended, Enter kills the pods of its namespaces, as nothing can
// manage them any more, and starts another one.
//
// # Programs
//
// Enter uses programs of the distribution: unshare, nsenter, setsid and mount of util-linux,
// newuidmap and newgidmap, and pasta, which connects the network namespace, and opens ports of the
// namespace on the machine.
//
// # Cgroups
//
// The user needs a cgroup of v2 that was delegated to him: see cgroups(7). Enter moves the processes
// in it to a child, [Leaf]. In the namespaces the delegated cgroup is the root.
//
// Enter, Visit and Remove lock the root directory, so that they may run concurrently. On systems other
// than Linux, Enter and Visit do nothing.
//
// Tier: beta.
package rootless

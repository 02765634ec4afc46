// Package containerdtest starts a private containerd: real pods for tests and for "make
// run". It does not interfere with other runtimes on the machine.
//
// The containerd of a [Containerd] has its own root, state, socket, runc root, CNI
// configuration, bridge and subnet, so that several can run at once.
// [Containerd.Stop] removes everything that the containerd created: sandboxes, shims,
// mounts, network namespaces, bridge, cgroups, directories. It changes nothing else on
// the machine.
//
//	func TestPod(t *testing.T) {
//		c := containerdtest.New(t, containerdtest.Options{}) // skips where it cannot run
//		client := dial(c.Socket)
//		...
//	}
//
// Faults: [Containerd.Kill] sends SIGKILL, and [Containerd.Halt] stops containerd by
// SIGTERM; containers keep running in both cases. [Containerd.Resume] starts containerd
// again with the same state. [Containerd.Freeze] and [Containerd.Thaw] make it hang.
//
// If the environment has RUNTIME=localcri, internal/cmd/localcri is used in place of
// containerd.
//
// A containerd needs root, Linux, and the programs of tools/go.mod in build/bin (see "make
// tools") or in PATH. If one is missing, [New] skips the test. With CI=true in the
// environment [New] fails the test instead.
package containerdtest

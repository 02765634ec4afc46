// Package containerdtest starts a private containerd: real pods for tests and
// for "make run", beside whatever else runs on the machine.
//
// The containerd of a [Containerd] has its own root, state, socket, runc root, CNI
// configuration, bridge and subnet, so that several can run at once.
// [Containerd.Stop] removes everything that it made: sandboxes, shims, mounts,
// network namespaces, bridge, cgroups, directories. Other files of the machine are
// left alone.
//
//	func TestPod(t *testing.T) {
//		c := containerdtest.New(t, containerdtest.Options{}) // skips where it cannot run
//		client := dial(c.Socket)
//		...
//	}
//
// Faults: [Containerd.Kill] sends SIGKILL and [Containerd.Halt] stops containerd in
// order; both leave containers running. [Containerd.Resume] starts it again on the
// same state. [Containerd.Freeze] and [Containerd.Thaw] make it hang.
//
// With RUNTIME=localcri in the environment the runtime is internal/cmd/localcri in
// place of containerd.
//
// It needs root, Linux, and the programs of tools/go.mod in build/bin (see "make
// tools") or in PATH. If one is missing, [New] skips the test; with CI=true in the
// environment it fails.
package containerdtest

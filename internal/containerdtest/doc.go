// Package containerdtest starts a private containerd: real pods for tests and
// for "make run", beside whatever else runs on the machine.
//
// The containerd of a [Containerd] has its own root, state, socket, runc root,
// CNI configuration, bridge and subnet, so that several can run at once.
// [Containerd.Stop] takes away all that came of it: sandboxes, shims, mounts,
// network namespaces, bridge, cgroups, directories. What was there before is left alone.
//
//	func TestPod(t *testing.T) {
//		c := containerdtest.New(t, containerdtest.Options{}) // skips where it cannot run
//		client := dial(c.Socket)
//		...
//	}
//
// Faults: [Containerd.Kill] is SIGKILL, [Containerd.Halt] an orderly end, both
// leave containers running; [Containerd.Resume] starts it again over the same
// state; [Containerd.Freeze] and [Containerd.Thaw] make it hang.
//
// With RUNTIME=localcri in the environment the runtime is internal/cmd/localcri
// instead, and what is said here of containerd holds for that.
//
// It needs root, Linux, and the programs of tools/go.mod in build/bin (see
// "make tools") or in PATH. [New] skips a test where one is missing, and
// fails it instead when the environment has CI=true.
package containerdtest

// Package cri talks to a container runtime over the Container Runtime
// Interface, version 1.
//
// A [Client] is a connection to one runtime, and to its image service if that has another socket.
// It has the methods of RuntimeService and ImageManagerService of k8s.io/cri-api/pkg/apis, so it
// can be used wherever these interfaces are required:
//
//	c, err := cri.New(cri.Config{Endpoint: "unix:///run/containerd/containerd.sock"})
//	if err != nil {
//		return err
//	}
//	defer c.Close(ctx)
//	version, err := c.Version(ctx, "v1")
//
// A [Reader] converts the runtime's answers to the plain values of package cri/observed: the list
// of all pods, one pod with all details, and the event stream. With [Reader.Noting] it records what
// was created, and reads it by ID.
//
// # Faults
//
// [New] opens no connection. Calls fail at once with the gRPC code Unavailable while the runtime
// cannot be reached. The client reconnects by itself, with exponential back-off of at most 3 s.
// Every call has a deadline, even if ctx has none. Errors keep their gRPC code: see [IsNotFound].
//
// All methods may be called from any goroutine.
//
// Tier: beta.
package cri

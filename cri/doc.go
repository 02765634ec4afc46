// Package cri talks to a container runtime over the Container Runtime
// Interface, version 1.
//
// A [Client] is a connection to one runtime (and to its image service, where
// that listens elsewhere). It has the methods of RuntimeService and
// ImageManagerService of k8s.io/cri-api/pkg/apis, so it goes wherever those
// interfaces are asked for:
//
//	c, err := cri.New(cri.Config{Endpoint: "unix:///run/containerd/containerd.sock"})
//	if err != nil {
//		return err
//	}
//	defer c.Close(ctx)
//	features, err := c.Discover(ctx)
//
// A [Reader] turns what a runtime shows into the plain values of package
// cri/observed: all pods as a list, one pod in full, and the event stream. With
// [Reader.Noting] it knows what was made, and asks for that by its ID.
//
// # Faults
//
// [New] opens nothing. Calls made while the runtime is away fail at once with
// the gRPC code Unavailable; the connection comes back by itself, with
// exponential back-off of 3 s at most. Every call has a deadline of its own,
// also when ctx has none. Errors keep their gRPC code: see [IsNotFound].
//
// All methods may be called from any goroutine.
//
// Tier: beta.
package cri

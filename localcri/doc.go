// Package localcri is a container runtime inside the process that uses it: the
// runtime half of CRI v1 over an OCI runtime program (runc or crun), without a
// daemon.
//
//	rt, err := localcri.New(localcri.Config{
//		RootDir:  "/var/lib/agent/runtime",
//		StateDir: "/run/agent/runtime",
//		Handlers: map[string]localcri.Handler{"runc": {Path: "/usr/bin/runc"}},
//		Monitor:  "/usr/libexec/agent-monitor",
//		Network:  network, // a network.Network
//		Images:   images,  // an image.Store
//	})
//	if err != nil {
//		return err
//	}
//	go rt.Run(ctx)
//	id, err := rt.RunPodSandbox(ctx, config, "")
//
// [Runtime] has the methods of cri-api's RuntimeService, and [Streams] those of
// exec, attach and port forwarding, as plain calls. localcri/serve puts both
// behind a socket.
//
// # Processes
//
// Each pod has one monitor, a small program that outlives this process. It is the parent of
// the pod's containers, writes their logs and keeps their exit codes. If either of the two
// dies, its successor recovers the state from the other.
//
// # Records
//
// Each sandbox and container has a small file, its record. Mounts, cgroups and sockets are
// named by its ID, so that the next start can attribute and remove the remains of a crash. A
// damaged record is restored from its monitor or its config.json; if neither has a copy, that
// one object is lost.
//
// # Waiting
//
// Operations belong to the runtime and not to the caller: a cancelled context ends the wait,
// and the next call for the same object joins the operation in progress. No lock is held
// during I/O, and no pod waits for another one.
//
// Tier: beta.
package localcri

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
// Each pod has one monitor, a small program that outlives this process. It is
// the parent of the pod's containers, writes their logs and keeps their exit
// codes. Whichever of the two dies, the other one has what a successor needs.
//
// # Records
//
// A sandbox or container is one small file. The names of everything else, as
// mounts, cgroups and sockets, are made of its ID, so that what a crash leaves
// can be told apart and is undone at the next start. A record that is damaged
// costs that object, and not even that one while its monitor or its config.json
// has a copy.
//
// # Waiting
//
// Work belongs to the runtime and not to the caller: a context that ends ends
// the wait, and the next call for the same object joins the work that is under
// way. No lock is held over a disk, a program or a network, and no pod waits for
// another one.
//
// Tier: beta.
package localcri

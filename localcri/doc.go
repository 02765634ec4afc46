// Package localcri is a container runtime inside the process that uses it: the
// runtime half of CRI v1 over an OCI runtime program (runc or crun), without a
// daemon.
//
//	rt, err := localcri.New(localcri.Config{
//		RootDir:  "/var/lib/agent/runtime",
//		StateDir: "/run/agent/runtime",
//		Handlers: map[string]localcri.Handler{"runc": {Path: "/usr/bin/runc"}},
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
// exec, attach and port forwarding, as plain calls. A [Server] puts both
// behind a socket.
//
// # Processes
//
// Each pod has one monitor, a small program that outlives this process. It is the parent of
// the pod's containers, writes their logs and keeps their exit codes. If either of the two
// dies, its successor recovers the state from the other. This package carries the program for
// amd64 and arm64; elsewhere Config.Monitor names it.
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
// # A whole runtime in one call
//
// [NewInProcess] puts a whole container runtime into a program: package localcri
// with images, a network, streams and CDI devices, made of one Config. Nothing but
// runc or crun has to be on the machine.
//
//	rt, err := localcri.NewInProcess(ctx, localcri.InProcessConfig{RootDir: "/var/lib/edge/localcri"})
//	go rt.Run(ctx)
//	a, err := agent.New(agent.Config{Runtime: rt.Runtime(), Images: agent.Images{Service: rt.Images()}, ...})
//
// Who wants other parts (a network or a store of images of his own) uses package
// localcri itself.
//
// Containers outlive the program, and its end; [Reset] ends them and takes back
// everything that was made.
//
// # A whole runtime in one call: network
//
// Pods get their addresses by the CNI plugins of the machine, if it has a
// configuration for them or is one of a cluster, and otherwise by the bridge of
// package network/bridge. Config.Network decides otherwise. The node's network is on
// record, and is kept until Config.Network names another one; pods that have the
// former keep it.
//
// # A whole runtime in one call: devices
//
// Containers get the devices of the Container Device Interface that device plugins
// and DRA drivers name, from the specifications in InProcessConfig.CDIDirs. A file that
// somebody other than root could have written is ignored.
//
// # A whole runtime in one call: directories
//
// InProcessConfig.RootDir has images, records and writable layers. What does not outlast a
// reboot is in /run/nodewright, and for another root directory than the default in
// /run/nodewright-HASH: two runtimes with directories of their own do not meet.
//
// # CRI over a socket
//
// [Server] puts a runtime of this process behind a unix socket, for crictl, critest
// and every other client of CRI v1 over gRPC.
//
//	s, err := localcri.NewServer(localcri.ServerConfig{
//		Socket:  "/run/agent/cri.sock",
//		Runtime: runtime, // a localcri.Runtime
//		Images:  images,  // an image.Store
//		Streams: runtime.Streams(),
//	})
//	if err != nil {
//		return err
//	}
//	return s.Run(ctx)
//
// Exec, attach and port forwarding answer with a URL of a server on the loopback
// interface, with a token that is good once and for a minute. That server asks
// nobody who they are: the token is all. A program with the runtime in its own process
// uses [Streaming] instead, whose URLs are of a unix socket.
//
// # CRI over a socket: ownership
//
// [NewServer] has no side effects. [Server.Run] listens, blocks, and has ended all
// calls and streams when it returns; the runtime stays the caller's.
//
// Tier: stable.
package localcri

// Package localcri is a container runtime inside the process that uses it: the runtime half of
// CRI v1 over an OCI runtime program (runc or crun), without a daemon.
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
// [Runtime] has the methods of cri-api's RuntimeService, and [Streams] has those for exec,
// attach and port forwarding, as plain calls. A [Server] serves both on a socket.
//
// # Processes
//
// Each pod has one monitor, a small program that outlives this process. It is the parent of the
// pod's containers, writes their logs and keeps their exit codes. If this process ends, the next
// one gets the state from the monitors; if a monitor ends, this process starts a successor with
// the state. This package contains the program for amd64 and arm64; on other architectures set
// Config.Monitor.
//
// # Records
//
// Each sandbox and container has a small file, its record. Mounts, cgroups and sockets are named
// by its ID, so that the next start can attribute and remove the remains of a crash. A damaged
// record is restored from its monitor or its config.json; if neither has a copy, only that object
// is lost.
//
// # Waiting
//
// Operations belong to the runtime, not to the caller: if a caller's context is cancelled, the
// caller stops waiting, but the operation continues. The next call for the same object waits for
// it. No lock is held during I/O, and no pod waits for another one.
//
// # A whole runtime in one call
//
// [NewInProcess] creates a complete container runtime inside a program: package localcri with
// images, a network, streams and CDI devices, from one Config. The machine needs only runc or
// crun.
//
//	rt, err := localcri.NewInProcess(ctx, localcri.InProcessConfig{RootDir: "/var/lib/edge/localcri"})
//	go rt.Run(ctx)
//	a, err := agent.New(agent.Config{Runtime: rt.Runtime(), Images: agent.Images{Service: rt.Images()}, ...})
//
// A program with its own network or image store uses [New] instead.
//
// Containers keep running when the program ends. [Reset] ends them and removes everything that
// was created.
//
// # A whole runtime in one call: network
//
// Pods get their addresses from the machine's CNI plugins, if a configuration names only
// installed ones or the node belongs to a cluster, and otherwise from the bridge of package
// network/bridge.
// InProcessConfig.Network overrides this. The choice is recorded, and kept until
// InProcessConfig.Network names another network. Existing pods keep the network that they have.
//
// # A whole runtime in one call: devices
//
// Containers get the devices of the Container Device Interface that device plugins and DRA
// drivers name, from the specifications in InProcessConfig.CDIDirs. A file that users other than
// root could have written is ignored.
//
// # A whole runtime in one call: directories
//
// InProcessConfig.RootDir has images, records and writable layers. State that a reboot ends is in
// /run/nodewright or, with a root directory other than the default, in /run/nodewright-HASH, so
// that runtimes with different root directories do not conflict.
//
// # CRI over a socket
//
// [Server] serves a runtime of this process on a unix socket, for crictl, critest and every other
// client of CRI v1 over gRPC.
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
// Exec, attach and port forwarding return a URL on the loopback interface, with a token that is
// valid once and for one minute. The token is the only authentication. A program with the runtime
// in its own process uses [Streaming] instead, whose URLs are on a unix socket.
//
// # CRI over a socket: ownership
//
// [NewServer] has no side effects. [Server.Run] listens and blocks; when it returns, all calls
// and streams have ended. The caller still owns the runtime.
//
// Tier: stable.
package localcri

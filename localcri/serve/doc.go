// Package serve puts a runtime of this process behind a unix socket, for crictl, critest
// and every other client of CRI v1 over gRPC.
//
//	s, err := serve.New(serve.Config{
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
// nobody who they are: the token is all.
//
// # Ownership
//
// [New] has no side effects. [Server.Run] listens, blocks, and has ended all
// calls and streams when it returns; the runtime stays the caller's.
//
// Tier: beta.
package serve

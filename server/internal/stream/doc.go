// Package stream connects a client's upgraded connection to the streaming server of
// a container runtime.
//
// The runtime answers Exec, Attach and PortForward with a URL. [Proxy] forwards the
// client's upgrade there and copies bytes in both directions: SPDY/3.1 and the
// WebSocket protocols up to v4.channel.k8s.io are not changed. Two protocols that
// runtimes do not support are translated to SPDY (KEP-4006):
//
//   - v5.channel.k8s.io, remote commands of kubectl since 1.31, whose streams
//     become SPDY streams;
//   - SPDY/3.1+portforward.k8s.io, a SPDY connection in WebSocket messages.
//
// # Safety
//
// The URL must be on this machine's loopback, and no redirect is followed or passed
// on: a runtime cannot lead a node's exec elsewhere. The runtime is called first:
// the client's connection is upgraded only if the runtime's is. Credentials of the
// client are not forwarded.
package stream

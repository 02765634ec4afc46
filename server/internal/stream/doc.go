// Package stream joins a client's upgraded connection to the streaming server
// of a container runtime.
//
// The runtime answers Exec, Attach and PortForward with a URL. [Proxy] takes
// the client's upgrade there and hands bytes on in both directions: SPDY/3.1
// and the WebSocket protocols up to v4.channel.k8s.io pass as they are. Two
// protocols that runtimes do not speak end here and go on as SPDY (KEP-4006):
//
//   - v5.channel.k8s.io, remote commands of kubectl since 1.31, whose streams
//     become SPDY streams;
//   - SPDY/3.1+portforward.k8s.io, a SPDY connection in WebSocket messages.
//
// # Safety
//
// The URL has to be on this machine's loopback, and no redirect is followed or
// handed on: a runtime cannot lead a node's exec elsewhere. The runtime is
// asked first: the client's connection is upgraded only if the runtime's is.
// Credentials of the client stay here.
package stream

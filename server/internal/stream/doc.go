// Package stream connects a client's upgraded connection to the streaming server of a container
// runtime.
//
// The runtime answers Exec, Attach and PortForward with a URL. [Proxy] forwards the client's
// upgrade to it and copies bytes in both directions. SPDY/3.1 and the WebSocket protocols up to
// v4.channel.k8s.io are passed on unchanged. Two protocols that runtimes do not support are
// translated to SPDY (KEP-4006):
//
//   - v5.channel.k8s.io, remote commands of kubectl since 1.31, whose streams become SPDY
//     streams;
//   - SPDY/3.1+portforward.k8s.io, a SPDY connection in WebSocket messages.
//
// # Safety
//
// The URL must be on this machine's loopback interface, and redirects are neither followed nor
// passed on: a runtime cannot redirect a node's exec elsewhere. The runtime is called first, and
// the client's connection is upgraded only if the runtime's is. The client's credentials are not
// forwarded.
package stream

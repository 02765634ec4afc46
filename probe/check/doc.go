// Package check makes one health check at a time: an HTTP request, a TCP
// connection, or a command. It needs the standard library only, no pod and no
// container runtime:
//
//	c := check.HTTP{URL: &url.URL{Scheme: "http", Host: "127.0.0.1:8080", Path: "/healthz"}}
//	ctx, cancel := context.WithTimeout(ctx, time.Second)
//	defer cancel()
//	outcome, output, err := c.Check(ctx)
//
// Each checker judges by the kubelet's rules, so that a probe that works there
// works here. Package grpchealth, below this one, speaks gRPC's health
// protocol.
//
// # Outcome and error
//
// The outcome is the judgement of what was checked, and output says why. An
// error means that there is no judgement: what was to be asked could not be
// asked, and whoever asked should neither trust nor blame what was checked. A
// server that refuses or does not answer is a [Failure] without an error.
//
// # Connections
//
// A check opens a connection and ends it with a reset once it has all it
// wants: neither side keeps the connection in TIME_WAIT, which at a check each
// second would be 60 dead sockets for each server. Field Graceful of the
// checkers asks for an orderly end instead, for servers that log resets.
//
// Every checker ends when its context does. All values may be used from many
// goroutines at a time.
//
// Tier: stable.
package check

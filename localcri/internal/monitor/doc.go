//go:build linux

// Package monitor keeps containers independent of the process that manages them.
//
// A monitor is a small process per pod (the program of localcri/nodewright-monitor). It is the
// parent of the pod's containers and of the commands executed in them: it runs the executor
// (runc, crun), writes the containers' logs, holds their standard input and terminals, and
// records how they end. It serves clients over a socket that only root can use; this package is
// the client.
//
// The monitor and the client may end independently. A client that reconnects asks for the state
// of all containers (Connect). If a monitor dies, its containers continue. The client then
// starts a successor (Launch), and hands over the containers, with files that it has kept for
// this case (Files, Adopt).
//
// This package embeds the built program, for amd64 and arm64 (Place). After a change of its
// sources, "make monitor" builds it again.
package monitor

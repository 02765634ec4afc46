//go:build linux

// Package monitor keeps containers apart from the process that manages them.
//
// A monitor is a small process per pod (the program of localcri/nodewright-monitor). It is the
// parent of the pod's containers and of what is executed in them: it runs the
// executor (runc, crun), writes the containers' logs, holds their standard input
// and terminals, and records how they end. It serves one client, this package,
// over a socket that only root can use.
//
// Either of the two may die. A client that comes back asks for the state of all
// containers (Connect). When a monitor died its containers go on: the client
// starts a successor (Launch) and hands it what it kept for that case (Escrow,
// Adopt).
//
// This package carries the program, built, for amd64 and arm64 (Place). After a change of
// its sources, "make monitor" builds it anew.
package monitor

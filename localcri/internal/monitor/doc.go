//go:build linux

// Package monitor keeps containers apart from the process that manages them.
//
// A monitor is a small process per pod (the program of monitor/cmd). It is the
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
// The program is built without C and without symbols, which makes it 1.8 MB:
//
//	CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o monitor github.com/nodewright/nodewright/localcri/monitor/cmd
//
// Who embeds it writes it to a file that root alone can write, below a name that
// changes with its content: monitors that run keep the file that they have.
package monitor

// Package agentbuild says how the agent is built to be small, for whoever
// builds it: make build, make run, and the test of its weight.
//
// Without the tag, gRPC brings in templates, and with these the linker keeps
// every exported method of every type. Of the libraries only those that decode and
// decompress are inlined; the others are clients that wait for somebody, and generated
// code. Of the standard library all is inlined but for handshakes, headers and profiles;
// of this module the packages that decide, compare, or read what many pods have in
// common. Packages that wait for a runtime, a server or a disk gain nothing by it.
// wrapglobalmapctl=2 has each map of a package made by a function of its own, which the
// linker leaves out with the map if nobody reads it: else small maps are always made, such
// as those with the documentation of API types. Functions need no alignment to 32 bytes,
// only to 4, as arm64 has instructions of 4 bytes.
package agentbuild

import (
	_ "embed"
	"strings"
)

//go:embed flags
var flags string

// Flags are those of go build, one each.
func Flags() []string { return strings.Split(strings.TrimSpace(flags), "\n") }

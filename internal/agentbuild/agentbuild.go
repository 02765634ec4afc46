// Package agentbuild says how the agent is built to be small, for whoever
// builds it: make build, make run, and the test of its weight.
//
// Without the tag, gRPC brings in templates, and with these the linker keeps
// every exported method of every type. Of the libraries only those that decode and
// decompress are inlined; the others are clients that wait for somebody, and generated
// code. Functions need no alignment to 32 bytes.
package agentbuild

import (
	_ "embed"
	"strings"
)

//go:embed flags
var flags string

// Flags are those of go build, one each.
func Flags() []string { return strings.Split(strings.TrimSpace(flags), "\n") }

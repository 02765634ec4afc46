package main

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// An architecture is a kind of machine that qemu emulates.
type architecture struct {
	name    string   // GOARCH, and Debian's name
	qemu    string   // the program
	pkg     string   // Debian's package of the program
	machine []string // qemu's arguments for the board and the CPU
	console string   // the kernel's name of the first serial port
	port    []string // qemu's arguments that add a second serial port, which is connected to the character device "results"
	results string   // the file of that port in the machine
}

var architectures = []architecture{
	{
		name: "amd64", qemu: "qemu-system-x86_64", pkg: "qemu-system-x86",
		machine: []string{"-cpu", "max"},
		console: "ttyS0", port: []string{"-serial", "chardev:results"}, results: "/dev/ttyS1",
	},
	{
		name: "arm64", qemu: "qemu-system-aarch64", pkg: "qemu-system-arm",
		// With "max", most time goes into the emulation of pointer authentication.
		machine: []string{"-machine", "virt", "-cpu", "cortex-a72"},
		console: "ttyAMA0", port: []string{"-device", "pci-serial,chardev=results"}, results: "/dev/ttyS0",
	},
}

// Set implements flag.Value.
func (a *architecture) Set(name string) error {
	i := slices.IndexFunc(architectures, func(known architecture) bool { return known.name == name })
	if i < 0 {
		var names []string
		for _, known := range architectures {
			names = append(names, known.name)
		}
		return fmt.Errorf("want one of %s", strings.Join(names, ", "))
	}
	*a = architectures[i]
	return nil
}

// String implements flag.Value.
func (a *architecture) String() string { return a.name }

// foreign reports whether the machine cannot run the programs of this system. A foreign machine has
// a root of its own (foreign.go), and tests without the race detector, which needs a C compiler for
// the architecture.
func (a *architecture) foreign() bool { return a.name != runtime.GOARCH }

// build returns the variables with which the go command builds the machine's tests.
func (a *architecture) build() []string {
	if a.foreign() {
		return []string{"CGO_ENABLED=0", "GOARCH=" + a.name}
	}
	return []string{"CGO_ENABLED=1"}
}

// dir returns the directory of the machine's files; vm is that of this system's architecture.
func (a *architecture) dir(vm string) string {
	if a.foreign() {
		return filepath.Join(vm, a.name)
	}
	return vm
}

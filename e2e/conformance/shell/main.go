// Command shell is /bin/sh of the suite's images: busybox's shell, or bash where
// a variable's name has a dash, which the first would drop. It imports next to
// nothing, to be there at once: a shell that a signal reaches before it has set
// its traps does not hear it.
package main

import (
	"os"
	"strings"
	"syscall"
)

func main() {
	program := "/bin/busybox"
	for _, e := range syscall.Environ() {
		if name, _, _ := strings.Cut(e, "="); strings.Contains(name, "-") {
			program = "/bin/bash"
		}
	}
	err := syscall.Exec(program, os.Args, syscall.Environ())
	_, _ = os.Stderr.WriteString(program + ": " + err.Error() + "\n")
	os.Exit(126)
}

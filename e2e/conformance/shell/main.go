// Command shell is /bin/sh of the suite's images. It executes busybox's shell or, if the name of
// a variable has a dash, bash, since busybox's shell would drop that variable. It imports almost
// nothing, so that it starts quickly: a signal that reaches a shell before the shell has set its
// traps has no effect.
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

// Command release is "make release": what people install, made of a commit.
//
//	release [--out DIR] [--arch amd64,arm64] [--commit HEAD]
//
// For each architecture it makes a static program in a tar.gz, a Debian package with
// a unit of systemd, an image as an OCI archive, and a list of what the program is
// made of (SPDX). The licenses of all that go with it. SHA256SUMS has the checksums of all. Two runs on one commit with one
// version of Go make the same bytes: nothing in them has a time but the commit's, nor
// a path, a user or a machine.
//
// It is made of a clone of the commit, so that what is not committed has no part in it.
// The version is that of the module there, as Go has it: the tag, or a pseudo-version.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

// architectures are those that programs are made for.
var architectures = []string{"amd64", "arm64"}

func main() {
	out := flag.String("out", filepath.Join("build", "release"), "the `directory` that is made anew with the release in it")
	archs := flag.String("arch", strings.Join(architectures, ","), "the `architectures`, in Go's words")
	commit := flag.String("commit", "HEAD", "the `commit` that is released")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r := release{out: *out}
	err := r.make(ctx, ".", *commit, strings.Split(*archs, ","))
	if flag.NArg() > 0 {
		err = fmt.Errorf("release takes no argument, got %q", flag.Arg(0))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		stop()
		os.Exit(1)
	}
}

// checkArchitectures refuses those that nothing is made for.
func checkArchitectures(archs []string) error {
	for _, a := range archs {
		if debianArchitecture(a) == "" {
			return fmt.Errorf("--arch=%q: want some of %s", a, strings.Join(architectures, ", "))
		}
	}
	return nil
}

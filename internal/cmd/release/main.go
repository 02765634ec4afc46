// Command release is "make release": it builds the files of a release from a
// commit.
//
//	release [--out DIR] [--arch amd64,arm64] [--commit HEAD]
//
// For each architecture it builds a static program in a tar.gz, a Debian package with a
// systemd unit, an image as an OCI archive, and an SPDX list of the components. The
// tar.gz, the package and the image contain the licenses of all components. SHA256SUMS
// has the checksums of all files. The result is reproducible: it depends only on the
// commit and the version of Go. Its only timestamp is the time of the commit. It
// contains no path, user or machine name of the build.
//
// The release is built from a clone of the commit, so that uncommitted changes have
// no effect. The version is the module's version: the commit's tag or a pseudo-version.
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

var architectures = []string{"amd64", "arm64"}

func main() {
	out := flag.String("out", filepath.Join("build", "release"), "the `directory` for the release; an existing one is replaced")
	archs := flag.String("arch", strings.Join(architectures, ","), "the `architectures`, as values of GOARCH")
	commit := flag.String("commit", "HEAD", "the `commit` to release")
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

// checkArchitectures returns an error for an unsupported architecture.
func checkArchitectures(archs []string) error {
	for _, a := range archs {
		if debianArchitecture(a) == "" {
			return fmt.Errorf("--arch=%q: want some of %s", a, strings.Join(architectures, ", "))
		}
	}
	return nil
}

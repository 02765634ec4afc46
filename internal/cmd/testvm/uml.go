package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// User-mode Linux is a kernel that is a program: its processes are traced ones of this system, whose
// system calls it serves itself (docs of Linux, virt/uml). It needs neither an emulator
// nor hardware, and sees this system's files by a file system of its own, hostfs.

// umlArgs are the parameters of the kernel: a console on stdio, no other. It ends with a panic.
func umlArgs(s settings, initramfs string) []string {
	args := []string{"mem=" + s.memory.String(), "initrd=" + initramfs, "con=null", "con0=fd:0,fd:1", "quiet"}
	return append(args, strings.Fields(s.parameters)...)
}

// umlRoot is this system's root, read-only.
func umlRoot(target string) mounting {
	return mounting{"none", target, "hostfs", unix.MS_RDONLY, "/"}
}

// fetchUML unpacks Debian's package into dir.
func fetchUML(ctx context.Context, _, dir string) error { return unpack(ctx, "user-mode-linux", dir) }

func findUML(dir string) (kernel, error) {
	trees, err := filepath.Glob(filepath.Join(dir, "usr", "lib", "uml", "modules", "*"))
	if err != nil {
		return kernel{}, err
	}
	if len(trees) != 1 {
		return kernel{}, fmt.Errorf("%d kernels match %s/usr/lib/uml/modules/*, want 1", len(trees), dir)
	}
	k := kernel{version: filepath.Base(trees[0]), tree: trees[0], image: filepath.Join(dir, "usr", "bin", "linux.uml"), boot: []string{"overlay"}}
	_, err = os.Stat(k.image)
	return k, err
}

// emptyDir makes a directory, or one that is there empty.
func emptyDir(dir string) (string, error) {
	return dir, errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755))
}

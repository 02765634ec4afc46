package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// User-mode Linux is a kernel that runs as a program. Its processes are traced
// processes of this system; it serves their system calls itself (virt/uml in the
// kernel's documentation). It needs neither an emulator nor hardware, and mounts
// this system's files with hostfs.

// umlArgs returns the kernel parameters: a single console on stdio, tracing of
// processes by seccomp if the kernel supports it, and an exit on panic.
func umlArgs(s settings, initramfs, disk string) []string {
	args := []string{"mem=" + s.memory.String(), "initrd=" + initramfs, "con=null", "con0=fd:0,fd:1", "quiet", "seccomp=auto"}
	if disk != "" {
		args = append(args, "ubd0="+disk)
	}
	return append(args, strings.Fields(s.parameters)...)
}

// umlRoot is this system's root, read-only.
func umlRoot(target string) mounting {
	return mounting{"none", target, "hostfs", unix.MS_RDONLY, "/"}
}

// fetchUML unpacks Debian's package into dir. uml.sh builds a faster kernel there.
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

// pin binds this thread, and the programs that it starts, to its current CPU. The
// kernel and its running process alternate: on one CPU each change is a context switch.
// On two CPUs it is an interrupt to a sleeping CPU; in a virtual machine this makes
// every system call four times as slow.
func pin() error {
	var cpu uint32
	if _, _, errno := unix.Syscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0); errno != 0 {
		return fmt.Errorf("getcpu: %w", errno)
	}
	var one unix.CPUSet
	one.Set(int(cpu))
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("run on CPU %d alone: %w", cpu, err)
	}
	return nil
}

// maxMappings limits the mappings of a process (sysctl vm.max_map_count, 65,530 by default).
const maxMappings = "/proc/sys/vm/max_map_count"

// allowMappings raises the limit in file to one mapping for each page of the
// machine's memory: each process of the machine is a process of this system with a
// mapping for each of its pages. Below the limit, such as with 256 MB, a process
// stops without an error.
func allowMappings(file string, m memory) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	has, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	want := int64(m) >> 12
	if has >= want {
		return nil
	}
	if err := os.WriteFile(file, strconv.AppendInt(nil, want, 10), 0o600); err != nil {
		say("programs of more than %d MB will hang in the machine: vm.max_map_count is %d; have root set it to %d", has>>8, has, want)
		return nil
	}
	say("vm.max_map_count of this system is %d now; it was %d", want, has)
	return nil
}

// emptyFile makes a sparse file of a size.
func emptyFile(file string, size int64) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Close())
}

// emptyDir creates a directory, or empties an existing one.
func emptyDir(dir string) (string, error) {
	return dir, errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755))
}

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

// User-mode Linux is a kernel that runs as a program (virt/uml in the kernel's
// documentation). Its processes are processes of this system that the program traces,
// and the program executes their system calls. It needs neither an emulator nor virtual
// hardware. It mounts this system's files with hostfs.

// umlArgs returns the kernel parameters: the initramfs, a single console on stdio, tracing
// of processes by seccomp if the kernel supports it, and a disk unless disk is "".
func umlArgs(s settings, initramfs, disk string) []string {
	args := []string{"mem=" + s.memory.String(), "initrd=" + initramfs, "con=null", "con0=fd:0,fd:1", "quiet", "seccomp=auto"}
	if disk != "" {
		args = append(args, "ubd0="+disk)
	}
	return append(args, strings.Fields(s.parameters)...)
}

// umlRoot returns a read-only mount of the host's root at target.
func umlRoot(target string) mounting {
	return mounting{"none", target, "hostfs", unix.MS_RDONLY, "/"}
}

// fetchUML unpacks Debian's package into dir. uml.sh can replace it by a faster kernel.
func fetchUML(ctx context.Context, vm, dir string, s settings) error {
	from, err := newArchive(s.arch, vm)
	if err != nil {
		return err
	}
	return from.unpack(ctx, "user-mode-linux", dir)
}

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

// pin binds this thread, and the programs that it starts, to its current CPU. Of a
// user-mode Linux, the kernel and the running process take turns. On one CPU each change
// is a context switch. On two CPUs it is an interrupt to a sleeping CPU, which in a
// virtual machine makes every system call four times as slow.
func pin() error {
	var cpu uint32
	if _, _, errno := unix.Syscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0); errno != 0 {
		return fmt.Errorf("getcpu: %w", errno)
	}
	var one unix.CPUSet
	one.Set(int(cpu))
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("bind to CPU %d: %w", cpu, err)
	}
	return nil
}

// maxMappings is the file of sysctl vm.max_map_count, the limit of memory mappings per process
// (65,530 by default).
const maxMappings = "/proc/sys/vm/max_map_count"

// allowMappings raises the limit in file to one mapping per page of the machine's memory
// m. A process of the machine is a process of this system with one mapping per page. If a
// process reaches the limit, with 256 MB by default, it hangs without an error. If
// the limit cannot be written, allowMappings prints this and returns nil.
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
		say("programs with more than %d MB of memory will hang in the machine: vm.max_map_count is %d; set it to %d as root", has>>8, has, want)
		return nil
	}
	say("set vm.max_map_count of this system to %d; it was %d", want, has)
	return nil
}

// emptyFile creates a sparse file of size bytes, or replaces the content of an existing one.
func emptyFile(file string, size int64) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Close())
}

// emptyDir creates a directory, or empties an existing one. It returns dir.
func emptyDir(dir string) (string, error) {
	return dir, errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755))
}

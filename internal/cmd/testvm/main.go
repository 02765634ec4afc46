// Command testvm is "make test-vm": it runs the tests that need root, containers
// and cgroups in a virtual machine, which it creates and deletes.
//
//	testvm [-arch ARCH] [-run REGEXP] [-args ARGUMENTS] [-systemd] [-timeout 1h] [-cpus 2] [-memory 3G] [-accel tcg] [-kernel DIR] [-append PARAMETERS] [PACKAGE...]
//	testvm -uml [-command COMMAND] [-run REGEXP] [-args ARGUMENTS] [-timeout 1h] [-memory 3G] [-disk 24G] [-kernel DIR] [PACKAGE...]
//
// The machine is the same on every host: Debian's kernel, cgroup v2 only, two NUMA
// nodes, root with every capability, and no network but lo.
//
// The steps, each in a file of its own:
//
//   - kernel.go fetches Debian's kernel package (debian.go) and unpacks it under build/vm;
//     nothing is installed. modules.go picks the kernel modules that containers need.
//   - tests.go compiles the test binaries with the race detector.
//   - cpio.go writes the initramfs: this program as /init, the modules, and
//     the plan, which lists the test binaries.
//   - qemu.go boots it. The machine sees this system's root read-only over 9p. machine.go
//     has what differs by architecture.
//   - guest.go is the /init. It puts a tmpfs over that root, so that tests may
//     write anywhere without an effect on this system. It runs the binaries with
//     CI=true, so that a test fails instead of skipping if containerd is missing.
//   - systemd.go runs this system's systemd as process 1 instead, with -systemd.
//   - report.go has the protocol between the machine and the host, and the summary.
//
// With -uml the machine is a user-mode Linux (uml.go): a kernel that runs as a
// process of this system. It computes at full speed and boots in two seconds. It
// has one CPU, no NUMA and no race detector. With Debian's kernel a system call
// takes 16 µs, and there are no cpusets. With a kernel from "make uml" a system call
// takes 9 µs. With -command the machine runs a shell command instead of tests. The
// files that the command writes below $OUT are in build/vm/out afterwards. With -disk
// the machine has an empty disk, /dev/ubda.
//
// With -arch the machine has another architecture than this system (foreign.go). Its root is
// made of Debian's packages for that architecture, below build/vm/ARCH, with the tests and
// the programs that they start, cross-compiled without the race detector. The repository
// is mounted into it. The tests use localcri in place of containerd. Everything is emulated
// one instruction at a time: by default only [foreignTests] run.
//
// The exit status is 0 only if every package reported success: a kernel panic, a
// hang or an early exit of qemu is a failure.
//
// The default for PACKAGE are the packages whose tests start containerd or use
// cgroups, the agent with its building blocks, and the packages whose tests need
// disks, which other kernels and sandboxes lack; see [pick].
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/sampleimage"
)

func main() {
	switch os.Args[0] {
	case initName:
		guestInit()
		return
	case runnerName:
		guestRun()
		return
	}
	runtime.LockOSThread() // the parent-death signal of qemu depends on this thread
	s := settings{memory: 3 << 30}
	if err := s.arch.Set(runtime.GOARCH); err != nil {
		fmt.Fprintf(os.Stderr, "test-vm: this system's architecture is %s; %v\n", runtime.GOARCH, err)
		os.Exit(2)
	}
	flag.Var(&s.arch, "arch", "the machine's `architecture`; another one than this system's is slow, and runs fewer tests by default")
	flag.StringVar(&s.run, "run", "", "only tests that match this `regexp`")
	flag.StringVar(&s.args, "args", "", "more `arguments` of the tests, separated by blanks")
	flag.BoolVar(&s.systemd, "systemd", os.Getenv("SYSTEMD") != "", "run the tests as a unit of systemd; SYSTEMD=1 has the same effect")
	flag.DurationVar(&s.limit, "timeout", 2*time.Hour, "how `long` the machine may run")
	flag.IntVar(&s.cpus, "cpus", 2, "`number` of the machine's CPUs")
	flag.Var(&s.memory, "memory", "the machine's memory, which also holds all files that tests write; a `size` such as 3G or 3072M")
	flag.StringVar(&s.accel, "accel", "tcg", "qemu's `accelerator`; kvm is faster where it works")
	flag.StringVar(&s.kernel, "kernel", "", "`directory` of an unpacked kernel package; default: Debian's kernel, downloaded once")
	flag.BoolVar(&s.uml, "uml", false, "run a user-mode Linux in place of qemu")
	flag.StringVar(&s.command, "command", "", "with -uml: run this shell `command` in place of tests")
	flag.Var(&s.disk, "disk", "with -uml: add an empty disk of this `size`, such as 24G, as a sparse file")
	flag.StringVar(&s.parameters, "append", "", "more `parameters` of the kernel, such as ipv6.disable=1")
	flag.Parse()
	if err := s.check(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "test-vm:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := host(ctx, s, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "test-vm:", err)
		os.Exit(1)
	}
}

type settings struct {
	arch    architecture
	run     string
	args    string
	systemd bool
	limit   time.Duration
	cpus    int
	memory  memory
	accel   string
	kernel  string
	uml     bool
	command string
	disk    memory

	parameters string // of the kernel, in addition to the usual ones
}

// check returns an error for flags that exclude each other.
func (s settings) check(packages []string) error {
	switch {
	case s.command != "" && !s.uml:
		return errors.New("-command requires -uml")
	case s.command != "" && (len(packages) > 0 || s.run != "" || s.args != ""):
		return errors.New("-command runs in place of tests; want no packages, -run or -args with it")
	case s.disk != 0 && !s.uml:
		return errors.New("-disk requires -uml")
	case s.uml && s.systemd:
		return errors.New("-systemd requires qemu; want it without -uml")
	case s.arch.foreign() && (s.uml || s.systemd):
		return fmt.Errorf("-arch %s requires qemu and has no systemd; want it without -uml and -systemd", s.arch.name)
	}
	return nil
}

// errTests means that the machine worked and tests failed.
var errTests = errors.New("tests failed")

func host(ctx context.Context, s settings, patterns []string) error {
	if err := provide(ctx, s); err != nil {
		return err
	}
	repo, err := repository(ctx)
	if err != nil {
		return err
	}
	vm := s.arch.dir(filepath.Join(repo, "build", "vm"))
	if err := os.MkdirAll(vm, 0o755); err != nil {
		return err
	}
	release, err := claim(filepath.Join(vm, ".lock"))
	if err != nil {
		return err
	}
	defer release()
	k, err := getKernel(ctx, vm, s)
	if err != nil {
		return err
	}
	modules, err := k.modules(ctx)
	if err != nil {
		return err
	}
	prepare := prepareNative
	if s.arch.foreign() {
		prepare = prepareForeign
	}
	m, err := prepare(ctx, repo, vm, s, patterns)
	if err != nil {
		return err
	}
	p := m.plan
	p.Run, p.Args, p.Limit, p.Systemd, p.Results = s.run, strings.Fields(s.args), s.limit, s.systemd, s.arch.results
	if s.systemd {
		p.Env = append(p.Env, "TESTVM=systemd")
	}
	initramfs := filepath.Join(vm, "initramfs")
	cmd, resultFile := s.arch.qemu, filepath.Join(vm, "results")
	args := qemuArgs(s, k.image, initramfs, resultFile, m.shares)
	if s.uml {
		if p.Out, err = emptyDir(filepath.Join(vm, "out")); err != nil {
			return err
		}
		p.Env, p.Results = append(p.Env, "OUT="+outDir), filepath.Join(outDir, resultName)
		if err := allowMappings(maxMappings, s.memory); err != nil {
			return err
		}
		disk := ""
		if s.disk != 0 {
			disk = filepath.Join(vm, "disk")
			defer func() { _ = os.Remove(disk) }()
			if err := emptyFile(disk, int64(s.disk)); err != nil {
				return err
			}
		}
		cmd, args, resultFile = k.image, umlArgs(s, initramfs, disk), filepath.Join(p.Out, resultName)
	}
	if err := writeInitramfs(initramfs, m.init, p, modules); err != nil {
		return fmt.Errorf("write initramfs: %w", err)
	}
	say("booting Linux %s with %s; console in %s", k.version, s.machine(), rel(repo, filepath.Join(vm, "console.log")))
	start := time.Now()
	r, err := boot(ctx, s, vm, resultFile, cmd, args...)
	if err != nil {
		return err
	}
	fmt.Print(r.summary(p, k.version, time.Since(start)))
	if !r.good(p) {
		return errTests
	}
	return nil
}

// A content is what a machine has of this system, and what it runs.
type content struct {
	plan   plan
	init   string            // the file of this program, as built for the machine
	shares map[string]string // directories of this system by mount tag
}

// prepareNative returns the content of a machine that has this system's root. It runs the tests
// that match patterns, or s.command.
func prepareNative(ctx context.Context, repo, vm string, s settings, patterns []string) (c content, err error) {
	c.shares = map[string]string{hostTag: "/"}
	if c.init, err = os.Executable(); err != nil {
		return c, err
	}
	if s.command != "" {
		c.plan = plan{Command: s.command, Dir: repo}
	} else if c.plan, err = compile(ctx, repo, filepath.Join(vm, "tests"), s, patterns); err != nil {
		return c, err
	}
	if c.plan.Env, err = environment(ctx, repo); err != nil {
		return c, err
	}
	_, err = sampleimage.Build(ctx, repo, filepath.Join(repo, "build", "images")) // the tests use these images
	return c, err
}

// machine returns the machine's CPUs, memory and accelerator as text.
func (s settings) machine() string {
	if s.uml {
		return fmt.Sprintf("%s of memory, in user mode", &s.memory)
	}
	return fmt.Sprintf("%d CPUs of %s and %s of memory on two NUMA nodes, %s", s.cpus, s.arch.name, &s.memory, s.accel)
}

func say(format string, args ...any) { fmt.Printf("test-vm: "+format+"\n", args...) }

// claim locks the file lock until release is called. It fails while another run holds the lock.
func claim(lock string) (release func(), err error) {
	f, err := os.OpenFile(lock, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(errors.New("another make test-vm runs in this repository"), f.Close())
	}
	return func() { _ = f.Close() }, nil // closing releases the lock
}

// repository returns the root directory of this module.
func repository(ctx context.Context) (string, error) {
	mod, err := goSays(ctx, "", nil, "env", "GOMOD")
	if err != nil {
		return "", err
	}
	if filepath.Base(mod) != "go.mod" {
		return "", errors.New("missing: the repository; run make test-vm in it")
	}
	return filepath.Dir(mod), nil
}

func rel(repo, path string) string {
	return strings.TrimPrefix(path, repo+string(filepath.Separator))
}

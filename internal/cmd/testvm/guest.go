package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Names (argv[0]) of this program inside the machine.
const (
	initName   = "/init"         // process 1, started by the kernel
	runnerName = "testvm-runner" // the child that runs the tests, started by /init
)

// Paths in the initramfs, without the leading slash.
const (
	planFile = "plan.json"
	hostDir  = "host"  // the shared root, read-only
	upperDir = "upper" // a tmpfs for changes
	rootDir  = "root"  // the overlay of upperDir on hostDir
)

const (
	tempDir    = "/run/tmp" // on tmpfs: an overlay cannot hold containerd's overlays
	runnerPlan = "/run/testvm.json"
	outDir     = "/run/out" // in a user-mode Linux: a directory of the host
	resultName = "results"  // a file in outDir
)

// margin is the part of the time limit that is reserved for the boot and the shutdown
// of the machine.
const margin = 30 * time.Second

// guestInit is process 1. It mounts file systems, runs the tests in a child, reaps orphans, and
// powers the machine off. If a step fails, the machine powers off without results. The host
// reports this as a failure.
func guestInit() {
	var p plan
	if err := bringUp(&p); err != nil {
		fmt.Fprintln(os.Stderr, "test-vm: bring up the machine:", err)
	}
	unix.Sync()
	how := unix.LINUX_REBOOT_CMD_RESTART // qemu has -no-reboot: it exits
	if p.Out != "" {
		how = unix.LINUX_REBOOT_CMD_POWER_OFF // a user-mode Linux would boot again at a restart
	}
	fmt.Fprintln(os.Stderr, "test-vm: end the machine:", unix.Reboot(how))
}

// bringUp reads the plan into p, sets the machine up, and runs the tests until they end.
// With p.Systemd it executes systemd, and returns only errors.
func bringUp(p *plan) error {
	b, err := os.ReadFile("/" + planFile)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, p); err != nil {
		return err
	}
	for _, m := range p.Modules {
		if err := load("/" + m); err != nil {
			return err
		}
	}
	self, err := os.ReadFile(initName)
	if err != nil {
		return err
	}
	if err := enterRoot(*p); err != nil {
		return err
	}
	if p.Systemd {
		return handOver(self, b)
	}
	if err := setUp(); err != nil {
		return err
	}
	if p.Out != "" {
		if err := mountAll([]mounting{{"none", outDir, "hostfs", 0, p.Out}}); err != nil {
			return err
		}
	}
	if err := os.WriteFile(runnerPlan, b, 0o600); err != nil {
		return err
	}
	runner := &exec.Cmd{Path: "/proc/self/exe", Args: []string{runnerName}, Stdout: os.Stdout, Stderr: os.Stderr}
	if err := runner.Start(); err != nil {
		return err
	}
	for {
		switch pid, err := unix.Wait4(-1, nil, 0, nil); {
		case pid == runner.Process.Pid:
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("wait for tests: %w", err)
		}
	}
}

func load(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := unix.InitModule(data, ""); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("load %s: %w", filepath.Base(file), err)
	}
	return os.Remove(file) // the initramfs is in memory: a removed file frees some
}

const hostname = "testvm"

// A mounting has the arguments of one call of mount(2).
type mounting struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

// mountAll mounts file systems in order. It creates missing directories.
func mountAll(all []mounting) error {
	for _, m := range all {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	return nil
}

func appendTo(file, text string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// enterRoot mounts an overlay of the shared root and a tmpfs, and makes it the root of
// this machine. It moves the overlay onto the old root: chroot alone is not enough, since
// runc's pivot_root requires a root that is a mount point.
func enterRoot(p plan) error {
	const host, upper, root = "/" + hostDir, "/" + upperDir, "/" + rootDir
	other := share(hostTag, host)
	if p.Out != "" {
		other = umlRoot(host)
	}
	if err := mountAll([]mounting{
		other,
		{"tmpfs", upper, "tmpfs", 0, "mode=755,size=70%"},
	}); err != nil {
		return err
	}
	for _, d := range []string{upper + "/data", upper + "/work"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	layers := fmt.Sprintf("lowerdir=%s,upperdir=%s/data,workdir=%s/work", host, upper, upper)
	if err := mountAll([]mounting{{"overlay", root, "overlay", 0, layers}}); err != nil {
		return err
	}
	if p.Repository != "" {
		if err := mountRepository(root, p.Repository); err != nil {
			return err
		}
	}
	if err := unix.Chdir(root); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move root: %w", err)
	}
	return errors.Join(unix.Chroot("."), unix.Chdir("/"))
}

// setUp prepares the machine as an init system does before it starts services.
func setUp() error {
	const safe = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := mountAll([]mounting{
		{"", "/", "", unix.MS_SHARED | unix.MS_REC, ""}, // like systemd
		{"proc", "/proc", "proc", safe, ""},
		{"sysfs", "/sys", "sysfs", safe, ""},
		{"securityfs", "/sys/kernel/security", "securityfs", safe, ""}, // for AppArmor profiles
		{"cgroup2", "/sys/fs/cgroup", "cgroup2", safe, "nsdelegate"},
		{"devtmpfs", "/dev", "devtmpfs", unix.MS_NOSUID, "mode=755"},
		{"devpts", "/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "mode=620,ptmxmode=666"},
		{"tmpfs", "/dev/shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, ""},
		{"mqueue", "/dev/mqueue", "mqueue", safe, ""},
		{"tmpfs", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=755,size=70%"},
	}); err != nil {
		return err
	}
	if err := os.Mkdir(tempDir, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(tempDir, 0o777|os.ModeSticky); err != nil {
		return err
	}
	for link, target := range map[string]string{
		"/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0", "/dev/stdout": "/proc/self/fd/1", "/dev/stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(target, link); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	controllers, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	if err != nil {
		return err
	}
	var enable []string
	for c := range strings.FieldsSeq(string(controllers)) {
		enable = append(enable, "+"+c)
	}
	if err := os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte(strings.Join(enable, " ")), 0); err != nil {
		return err
	}
	if _, err := os.Stat("/etc/resolv.conf"); err != nil { // may be a link into the host's /run
		if err := errors.Join(os.RemoveAll("/etc/resolv.conf"), os.WriteFile("/etc/resolv.conf", nil, 0o644)); err != nil {
			return err
		}
	}
	return errors.Join(unix.Sethostname([]byte(hostname)), appendTo("/etc/hosts", "127.0.1.1 "+hostname+"\n"), loopbackUp())
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

// guestRun runs the command or every test binary, and reports each result to the host.
func guestRun() {
	p, err := readPlan()
	if err != nil {
		fmt.Fprintln(os.Stderr, "test-vm:", err)
		return
	}
	port, err := os.OpenFile(p.Results, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		fmt.Fprintln(os.Stderr, "test-vm:", err)
		return
	}
	end := result{End: true}
	if err := p.runAll(port); err != nil {
		end.Error = err.Error()
	}
	if err := errors.Join(tell(port, end), port.Close()); err != nil {
		fmt.Fprintln(os.Stderr, "test-vm: report results:", err)
	}
}

func readPlan() (p plan, err error) {
	b, err := os.ReadFile(runnerPlan)
	if errors.Is(err, os.ErrNotExist) {
		b, err = os.ReadFile(unitPlan)
	}
	if err != nil {
		return p, err
	}
	return p, json.Unmarshal(b, &p)
}

func (p plan) runAll(port io.Writer) error {
	deadline := time.Now().Add(p.Limit - margin)
	if p.Command != "" {
		return tell(port, p.command(deadline, os.Stdout))
	}
	for _, t := range p.Tests {
		if err := tell(port, p.test(t, deadline, os.Stdout)); err != nil {
			return err
		}
	}
	return nil
}

// command runs the plan's shell command. At the deadline the command gets SIGTERM.
func (p plan) command(deadline time.Time, out io.Writer) result {
	r, start := result{Package: commandName}, time.Now()
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", p.Command)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = p.Dir, slices.Concat(p.Env, []string{"PWD=" + p.Dir}), out, out
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(unix.SIGTERM) }, margin/2
	if err := cmd.Run(); err != nil {
		r.Error = err.Error()
	}
	r.Took = time.Since(start)
	return r
}

func tell(port io.Writer, r result) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = port.Write(append(b, '\n'))
	return err
}

// test runs one test binary. At the deadline the binary prints its goroutines and exits
// (-test.timeout).
func (p plan) test(t testBinary, deadline time.Time, out io.Writer) result {
	r := result{Package: t.Package}
	start := time.Now()
	left := time.Until(deadline).Round(time.Second)
	if left <= 0 {
		r.Error = "no time left"
		return r
	}
	fmt.Fprintf(out, "=== %s\n", t.Package)
	ctx, cancel := context.WithDeadline(context.Background(), deadline.Add(margin/2))
	defer cancel()
	cmd := exec.CommandContext(ctx, t.File, append([]string{"-test.v", "-test.timeout=" + left.String(), "-test.run=" + cmp.Or(t.Run, p.Run), "-test.short"}, p.Args...)...)
	cmd.Dir, cmd.Env = t.Dir, slices.Concat(p.Env, []string{"PWD=" + t.Dir})
	cmd.Stdout = io.MultiWriter(out, &tally{res: &r})
	cmd.Stderr = cmd.Stdout
	cmd.WaitDelay = margin // a process that a test left behind may keep the output open
	if err := cmd.Run(); err != nil {
		r.Error = err.Error()
	}
	r.Took = time.Since(start)
	return r
}

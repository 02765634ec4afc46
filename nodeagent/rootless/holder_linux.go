package rootless

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/bootid"
	"github.com/nodewright/nodewright/internal/durable"
	"github.com/nodewright/nodewright/internal/kernel"
	"github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/internal/safefile"
)

// Names below the directory of a root directory.
const (
	dirName    = "rootless"
	recordName = "namespaces.json"
	pidName    = "pasta.pid"
	runName    = "run" // an empty directory
)

// lockName is node.RootLockName: the lock of the agent that uses a root directory.
const lockName = "agent.lock"

const (
	// stepTimeout limits each step of a start. A machine under load takes seconds.
	stepTimeout = 30 * time.Second
	pause       = 10 * time.Millisecond
)

// process is a process that outlives the agent.
type process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // field 22 of its stat, unique together with the ID
}

// record is the content of the record of the namespaces.
type record struct {
	Boot   string  `json:"boot"` // boot ID
	Holder process `json:"holder"`
	Ports  string  `json:"ports,omitempty"` // Config.Ports of the network
}

// lives reports whether the process exists.
func (p process) lives(ctx context.Context) bool {
	now, err := kernel.This.Process(ctx, p.PID)
	return p.PID > 0 && err == nil && !now.Ended() && now.Start == p.Start
}

// kill kills the process, if it exists, and waits for its end.
func (p process) kill(ctx context.Context) error {
	if p.PID <= 0 {
		return nil
	}
	fd, err := unix.PidfdOpen(p.PID, 0) // before the comparison, so that the ID is not reused after it
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if !p.lives(ctx) {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", p.PID, err)
	}
	return until(ctx, fmt.Sprintf("process %d has not ended", p.PID), func() bool { return !p.lives(ctx) })
}

// processOf returns the process that has an ID now.
func processOf(ctx context.Context, pid int) (process, error) {
	p, err := kernel.This.Process(ctx, pid)
	return process{PID: pid, Start: p.Start}, err
}

// until waits until done returns true.
func until(ctx context.Context, otherwise string, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	for !done() {
		if !retry.Sleep(ctx, pause) {
			return errors.New(otherwise)
		}
	}
	return nil
}

// home is the directory of this package below a root directory.
type home struct {
	root string
	durable.Dir
	boot string
}

// openHome creates the root directory of an agent and the directory of this package, and locks the
// directory until unlock is called or the process executes a program.
func openHome(rootDir string) (h home, unlock func(), err error) {
	if h.boot, err = bootid.Read(os.DirFS("/")); err != nil { //nolint:forbidigo // the kernel's boot ID
		return h, nil, err
	}
	h.root = rootDir
	h.Dir = durable.Dir{Path: filepath.Join(rootDir, dirName), Disk: durable.OS{DirMode: 0o700, FileMode: 0o600}}
	// Users of pods pass the root directory, as that of an agent of root.
	if err := os.MkdirAll(rootDir, 0o755); err != nil {
		return h, nil, err
	}
	if err := h.Prepare(); err != nil {
		return h, nil, err
	}
	d, err := os.Open(h.Path) //nolint:forbidigo // a directory of the user
	if err != nil {
		return h, nil, err
	}
	if err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX); err != nil {
		return h, nil, errors.Join(fmt.Errorf("lock %s: %w", h.Path, err), d.Close())
	}
	return h, func() { _ = d.Close() }, nil
}

// read returns the record, or an empty one if there is none of this boot.
func (h home) read() record {
	var r record
	b, err := h.Read(recordName)
	if err != nil || json.Unmarshal(b, &r) != nil || r.Boot != h.boot && !Inside() {
		return record{Boot: h.boot}
	}
	return r
}

func (h home) write(r record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return h.Replace(recordName, b)
}

// setUp runs as root in the new namespaces, and becomes the holder. It prints its process ID when the
// namespaces are ready. $1 is an empty directory, $2 the marker.
//
// /run becomes a directory of the namespaces, in which what the machine has there is mounted, since an
// ordinary user can create nothing in /run, and state in /run has to end with the namespaces. These are
// no symbolic links: the root directory may be below /run. mount has -n: its own records are in /run
// too.
//
// The namespaces have a boot ID of their own: if they are gone, so are mounts and processes of pods, as
// after a reboot.
const setUp = `set -eu
mount -n -t tmpfs -o mode=755 run "$1"
for e in /run/*; do
	n=$1/${e#/run/}
	case $e in /run/netns|/run/nodewright*) continue ;; esac
	if [ -L "$e" ]; then cp -P "$e" "$n"
	elif [ -d "$e" ]; then mkdir "$n"; mount -n --rbind "$e" "$n" || :
	else : > "$n"; mount -n --bind "$e" "$n" || :
	fi
done
mount -n --move "$1" /run
mount -n -t sysfs -o nosuid,nodev,noexec sysfs /sys
mount -n -t cgroup2 -o nosuid,nodev,noexec cgroup2 /sys/fs/cgroup
mount -n --make-rshared /
cat /proc/sys/kernel/random/uuid > "$2"
mount -n --bind "$2" /proc/sys/kernel/random/boot_id
echo $$
cd /
exec sleep infinity >/dev/null 2>&1`

// start starts the holder in the cgroup of this process, and records it.
func (h home) start(ctx context.Context, r *record) error {
	run := filepath.Join(h.Path, runName)
	if err := os.Mkdir(run, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	// setsid forks, so that the holder is no child of the agent, and does not end with its terminal.
	out, text, err := output(ctx, "setsid", "--fork", "unshare", "--user", "--map-root-user", "--map-auto", "--mount", "--propagation", "slave", "--net", "--cgroup", "--",
		"sh", "-c", setUp, "sh", run, marker)
	if err != nil {
		return fmt.Errorf("create namespaces: %w", err)
	}
	pid, err := strconv.Atoi(out)
	if err != nil {
		return fmt.Errorf("create namespaces: %.1000s", text)
	}
	if r.Holder, err = processOf(ctx, pid); err != nil {
		return err
	}
	if err := h.write(*r); err != nil {
		return errors.Join(err, r.Holder.kill(ctx))
	}
	return nil
}

// connect starts pasta for the network namespace of the holder.
func (h home) connect(ctx context.Context, holder process, ports string) error {
	ns := fmt.Sprintf("/proc/%d/ns/", holder.PID)
	// Nothing of the machine's loopback interface is for pods. Only IPv4, as the network bridge of
	// pods: otherwise clients that try ::1 first would be accepted by pasta and refused after that.
	ports = cmp.Or(ports, "auto")
	args := []string{"--ipv4-only", "--config-net", "--no-map-gw", "--tcp-ports", ports, "--udp-ports", ports, "--tcp-ns", "none", "--udp-ns", "none",
		"--pid", filepath.Join(h.Path, pidName), "--userns", ns + "user", "--netns", ns + "net"}
	// Connections to the machine's loopback interface reach that of the namespace.
	if recent(ctx) {
		args = append(args, loopback)
	}
	if _, text, err := output(ctx, "pasta", args...); err != nil {
		return fmt.Errorf("connect network: pasta: %w: %.1000s", err, text)
	}
	return nil
}

// pasta returns the running pasta of this root directory, or the zero value. Its own file with its
// process ID is its record: it is in its arguments too.
func (h home) pasta(ctx context.Context) process {
	file := filepath.Join(h.Path, pidName)
	b, err := safefile.ReadFile(file, maxFile)
	if err != nil {
		return process{}
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return process{}
	}
	p, err := processOf(ctx, pid)
	if err != nil {
		return process{}
	}
	args, err := safefile.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid), maxFile)
	if err != nil || !bytes.Contains(args, []byte("\x00"+file+"\x00")) {
		return process{}
	}
	return p
}

// loopback is an option of pasta since version 2024_10_30. Older ones behave as if it were set.
const loopback = "--host-lo-to-ns-lo"

// recent reports whether pasta has the option loopback, which its help does not show. Older versions of
// pasta, such as that of Debian 12, open only the ports that listen when pasta starts.
func recent(ctx context.Context) bool {
	return exec.CommandContext(ctx, "pasta", loopback, "--version").Run() == nil
}

// output runs a program until it exits and no process has its output, and returns what it printed.
func output(ctx context.Context, program string, args ...string) (out, text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return strings.TrimSpace(stdout.String()), strings.TrimSpace(stderr.String()), err
}

// settle moves the processes of the delegated cgroup to its leaf, so that controllers can be enabled
// in the delegated one.
func settle(base string) error {
	dir := path.Join(cgroupMount, base)
	leaf := path.Join(dir, Leaf)
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	// Children of moving processes may appear in the meantime.
	for range 10 {
		b, err := safefile.ReadFile(path.Join(dir, "cgroup.procs"), maxFile)
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(b)) == 0 {
			return nil
		}
		for pid := range strings.FieldsSeq(string(b)) {
			if err := writeFile(path.Join(leaf, "cgroup.procs"), pid); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("move process %s to cgroup %s: %w", pid, leaf, err)
			}
		}
	}
	return nil
}

// clearBase kills what is left of earlier namespaces in the delegated cgroup, removes its cgroups, and
// moves this process to the delegated cgroup, which becomes the root of the new cgroup namespace.
func clearBase(ctx context.Context, base string) error {
	dir := path.Join(cgroupMount, base)
	if err := removePods(ctx, dir); err != nil {
		return err
	}
	// A cgroup whose controllers are enabled for its children can have no processes.
	b, err := safefile.ReadFile(path.Join(dir, "cgroup.subtree_control"), maxFile)
	if err != nil {
		return err
	}
	for c := range strings.FieldsSeq(string(b)) {
		if err := writeFile(path.Join(dir, "cgroup.subtree_control"), "-"+c); err != nil {
			return err
		}
	}
	return writeFile(path.Join(dir, "cgroup.procs"), strconv.Itoa(os.Getpid()))
}

// removePods removes the cgroups of pods and of their monitors.
func removePods(ctx context.Context, dir string) error {
	names, err := safefile.Names(dir, 1<<16)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		if name == "kubepods" || strings.HasPrefix(name, "nodewright-") {
			errs = append(errs, removeCgroup(ctx, path.Join(dir, name)))
		}
	}
	return errors.Join(errs...)
}

// removeCgroup kills all processes of a cgroup and removes it with the cgroups below.
func removeCgroup(ctx context.Context, dir string) error {
	if err := writeFile(path.Join(dir, "cgroup.kill"), "1"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var remove func(dir string) error
	remove = func(dir string) error {
		entries, err := safefile.Entries(dir, 1<<16)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.IsDir() {
				if err := remove(path.Join(dir, e.Name())); err != nil {
					return err
				}
			}
		}
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
			return &os.PathError{Op: "rmdir", Path: dir, Err: err}
		}
		return nil
	}
	var err error
	if late := until(ctx, "processes have not ended", func() bool { err = remove(dir); return !errors.Is(err, unix.EBUSY) }); late != nil {
		return errors.Join(err, late)
	}
	return err
}

//go:build linux

package localcri_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/diskusage"
	"github.com/nodewright/nodewright/internal/diskusage/quotatest"
	"github.com/nodewright/nodewright/internal/sampleimage"
	"github.com/nodewright/nodewright/internal/testprogram"
	"github.com/nodewright/nodewright/localcri"
	"github.com/nodewright/nodewright/localcri/image"
)

const shell = "localhost/shell:1"

// newShellNode has an image with a shell.
func newShellNode(t *testing.T, change ...func(*node)) *node {
	t.Helper()
	n := newNode(t, change...)
	b := testprogram.Busybox(t)
	var buf bytes.Buffer
	img := sampleimage.Image{Name: shell, Architecture: runtime.GOARCH, Entrypoint: []string{"/bin/sh", "-c"}, Env: []string{"PATH=/bin"}}
	for _, name := range []string{"busybox", "sh", "sleep", "dd", "cat", "echo", "ls", "cp", "kill", "head", "yes", "test", "ps", "tr", "true", "stty", "grep", "id", "readlink"} {
		f := sampleimage.File{Path: "/bin/" + name, Mode: 0o755, Data: []byte("#!/bin/busybox " + name + "\n")}
		if name == "busybox" || name == "sh" {
			f.Data = b
		} else {
			f.Data = []byte("#!/bin/sh\nexec busybox " + name + " \"$@\"\n")
		}
		img.Files = append(img.Files, f)
	}
	img.Files = append(img.Files, sampleimage.File{Path: "/tmp/", Mode: 0o1777})
	if err := sampleimage.Write(&buf, img); err != nil {
		t.Fatal(err)
	}
	if _, err := n.images.Import(t.Context(), &buf, image.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(n.logs(), 0o755); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *node) logs() string { return filepath.Join(n.dir, "logs") }

// pod makes a sandbox that goes with the test.
func (n *node) pod(t *testing.T, name string, change ...func(*runtimeapi.PodSandboxConfig)) string {
	t.Helper()
	conf := n.podConfig(name)
	for _, f := range change {
		f(conf)
	}
	id, err := n.rt.RunPodSandbox(t.Context(), conf, "")
	if err != nil {
		t.Fatalf("RunPodSandbox: %v", err)
	}
	t.Cleanup(func() {
		if err := n.rt.RemovePodSandbox(context.Background(), id); err != nil {
			t.Errorf("RemovePodSandbox: %v", err)
		}
	})
	return id
}

func script(name, text string, change ...func(*runtimeapi.ContainerConfig)) *runtimeapi.ContainerConfig {
	c := boxConfig(name, text)
	c.Image.Image = shell
	for _, f := range change {
		f(c)
	}
	return c
}

func (n *node) create(t *testing.T, pod string, c *runtimeapi.ContainerConfig) string {
	t.Helper()
	id, err := n.rt.CreateContainer(t.Context(), pod, c, nil)
	if err != nil {
		t.Fatalf("CreateContainer: %v", err)
	}
	return id
}

func (n *node) run(t *testing.T, pod string, c *runtimeapi.ContainerConfig) string {
	t.Helper()
	id := n.create(t, pod, c)
	if err := n.rt.StartContainer(t.Context(), id); err != nil {
		t.Fatalf("StartContainer: %v", err)
	}
	return id
}

func (n *node) readLog(t *testing.T, id string) string {
	t.Helper()
	st, err := n.rt.ContainerStatus(t.Context(), id, false)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := os.ReadFile(st.GetStatus().GetLogPath())
	return string(b)
}

func (n *node) untilLog(t *testing.T, id, text string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(n.readLog(t, id), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("log never has %q: %.500s", text, n.readLog(t, id))
		}
	}
}

func TestExecSyncOnRealContainers(t *testing.T) {
	n := newShellNode(t)
	sb := n.pod(t, "p")
	c := n.run(t, sb, script("c", "sleep 10000"))
	ctx := t.Context()
	sh := func(text string, timeout time.Duration) (string, string, error) {
		out, errOut, err := n.rt.ExecSync(ctx, c, []string{"/bin/sh", "-c", text}, timeout)
		return string(out), string(errOut), err
	}
	t.Run("streams and status", func(t *testing.T) {
		out, errOut, err := sh("echo out; echo err >&2; exit 7", 0)
		var exit *localcri.ExitError
		if out != "out\n" || errOut != "err\n" || !errors.As(err, &exit) || exit.Code != 7 {
			t.Errorf("%q, %q, %v", out, errOut, err)
		}
	})
	t.Run("background children do not hold it", func(t *testing.T) {
		begin := time.Now()
		out, _, err := sh("sleep 1000 & echo here", 0)
		if took := time.Since(begin); out != "here\n" || err != nil || took > 40*time.Second {
			t.Errorf("%q, %v after %v", out, err, took)
		}
	})
	t.Run("output has a bound", func(t *testing.T) {
		out, _, err := sh("dd if=/dev/zero bs=1M count=40 2>/dev/null", 0)
		if len(out) != 16<<20 || err != nil {
			t.Errorf("%d bytes, %v", len(out), err)
		}
	})
	t.Run("time-out kills children that ignore TERM", func(t *testing.T) {
		_, _, err := sh("trap '' TERM; (trap '' TERM; exec busybox sleep 54321) & busybox sleep 54321", time.Second)
		if status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("error %v", err)
		}
		for deadline := time.Now().Add(time.Minute); n.finds("sleep\x0054321"); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("a process is left")
			}
		}
		if st, _ := n.rt.ContainerStatus(ctx, c, false); st.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("container: %v", st)
		}
	})
	t.Run("missing command", func(t *testing.T) {
		_, _, err := n.rt.ExecSync(ctx, c, []string{"/no/such"}, 0)
		if err == nil || !strings.Contains(err.Error(), "/no/such") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("not running", func(t *testing.T) {
		d := n.create(t, sb, script("d", "true"))
		_, _, err := n.rt.ExecSync(ctx, d, []string{"/bin/sh"}, 0)
		if status.Code(err) != codes.FailedPrecondition {
			t.Errorf("error %v", err)
		}
	})
	if left, _ := filepath.Glob(filepath.Join(n.state, "c", c, "x*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// finds reports whether a process has these arguments.
func (n *node) finds(args string) bool {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		b, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if strings.Contains(string(b), args) {
			return true
		}
	}
	return false
}

func TestStreamsOnRealContainers(t *testing.T) {
	n := newShellNode(t)
	sb := n.pod(t, "p")
	c := n.run(t, sb, script("c", "while read l; do echo got $l; done; echo over", func(c *runtimeapi.ContainerConfig) { c.Stdin = true }))
	s := n.rt.Streams()
	t.Run("exec", func(t *testing.T) {
		var out, errOut bytes.Buffer
		code, err := s.Exec(t.Context(), c, localcri.ExecOptions{
			Command: []string{"/bin/sh", "-c", "cat; echo e >&2; exit 5"}, Stdin: strings.NewReader("hello"), Stdout: &out, Stderr: &errOut,
		})
		if code != 5 || err != nil || out.String() != "hello" || errOut.String() != "e\n" {
			t.Errorf("%d, %v, %q, %q", code, err, out.String(), errOut.String())
		}
	})
	t.Run("exec with a terminal", func(t *testing.T) {
		var out bytes.Buffer
		sizes := make(chan localcri.Size, 1)
		sizes <- localcri.Size{Width: 132, Height: 43}
		code, err := s.Exec(t.Context(), c, localcri.ExecOptions{
			Command: []string{"/bin/sh", "-c", "i=0; until test \"$(stty size)\" = '43 132' || test $i = 120; do i=$((i+1)); busybox sleep 1; done; stty size; exit 6"},
			TTY:     true, Stdout: &out, Resize: sizes,
		})
		if code != 6 || err != nil || !strings.Contains(out.String(), "43 132\r\n") {
			t.Errorf("%d, %v, %q", code, err, out.String())
		}
	})
	t.Run("exec whose caller goes", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r, w := io.Pipe()
		go func() {
			b := make([]byte, 1)
			_, _ = r.Read(b)
			cancel()
			_, _ = io.Copy(io.Discard, r)
		}()
		_, err := s.Exec(ctx, c, localcri.ExecOptions{Command: []string{"/bin/sh", "-c", "echo; exec busybox sleep 65432"}, Stdout: w})
		if err == nil {
			t.Error("no error")
		}
		for deadline := time.Now().Add(time.Minute); n.finds("sleep\x0065432"); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("its process is left")
			}
		}
	})
	t.Run("attach", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		in, typed := io.Pipe()
		var mu sync.Mutex
		var out bytes.Buffer
		done := make(chan error, 1)
		go func() {
			done <- s.Attach(ctx, c, localcri.AttachOptions{Stdin: in, Stdout: writer(func(b []byte) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				return out.Write(b)
			})})
		}()
		if _, err := typed.Write([]byte("one\n")); err != nil {
			t.Error(err)
		}
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
			mu.Lock()
			got := out.String()
			mu.Unlock()
			if strings.Contains(got, "got one\n") {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("attached to %q", got)
			}
		}
		cancel()
		_ = typed.Close()
		<-done
		n.untilLog(t, c, "got one")
	})
	t.Run("refusals", func(t *testing.T) {
		_, err := s.Exec(t.Context(), c, localcri.ExecOptions{Command: []string{"x"}})
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("without streams: %v", err)
		}
		_, err = s.Exec(t.Context(), c, localcri.ExecOptions{Command: []string{"x"}, TTY: true, Stderr: io.Discard})
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("tty with stderr: %v", err)
		}
	})
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

func withPID(mode runtimeapi.NamespaceMode, target string) func(*runtimeapi.ContainerConfig) {
	return func(c *runtimeapi.ContainerConfig) {
		c.Linux.SecurityContext.NamespaceOptions = &runtimeapi.NamespaceOption{Pid: mode, TargetId: target}
	}
}

func sharedPID(c *runtimeapi.PodSandboxConfig) {
	c.Linux.SecurityContext.NamespaceOptions.Pid = runtimeapi.NamespaceMode_POD
}

// A container shares the sandbox' namespaces if it says nothing else: those of the node, if
// the sandbox has these.
func TestSandboxOfTheNodesNamespaces(t *testing.T) {
	n := newShellNode(t)
	sb := n.pod(t, "p", func(c *runtimeapi.PodSandboxConfig) {
		o := c.Linux.SecurityContext.NamespaceOptions
		o.Pid, o.Ipc = runtimeapi.NamespaceMode_NODE, runtimeapi.NamespaceMode_NODE
	})
	c := n.run(t, sb, script("c", "sleep 10000", func(c *runtimeapi.ContainerConfig) { c.Linux.SecurityContext.NamespaceOptions = nil }))
	for _, space := range []string{"pid", "ipc"} {
		want, err := os.Readlink("/proc/self/ns/" + space)
		if err != nil {
			t.Fatal(err)
		}
		out, errOut, err := n.rt.ExecSync(t.Context(), c, []string{"/bin/readlink", "/proc/self/ns/" + space}, 0)
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("%s: %q, want %q (%s, %v)", space, got, want, errOut, err)
		}
	}
}

// Who is root in a shared PID namespace sees the infra process, and neither the
// host nor a program that others run.
func TestSharedPIDNamespace(t *testing.T) {
	n := newShellNode(t)
	sb := n.pod(t, "p", sharedPID)
	privileged := func(c *runtimeapi.ContainerConfig) {
		c.Linux.SecurityContext.Capabilities = &runtimeapi.Capability{AddCapabilities: []string{"SYS_PTRACE"}}
	}
	c := n.run(t, sb, script("c", "sleep 10000", withPID(runtimeapi.NamespaceMode_POD, ""), privileged))
	d := n.run(t, sb, script("d", "sleep 10000", withPID(runtimeapi.NamespaceMode_POD, "")))
	out, errOut, err := n.rt.ExecSync(t.Context(), c, []string{"/bin/sh", "-c",
		"tr '\\0' ' ' < /proc/1/cmdline; echo; ls /proc/1/root/; echo x > /proc/1/root/pause && echo WRITTEN; echo x > /proc/1/exe && echo WRITTEN; true"}, 0)
	if err != nil || !strings.Contains(string(out), "/pause pause") || strings.Contains(string(out), "WRITTEN") ||
		strings.Contains(string(out), "usr") || strings.Contains(string(out), "home") {
		t.Errorf("%q, %q, %v", out, errOut, err)
	}
	if l, _ := n.rt.ListContainers(t.Context(), nil); len(l) != 2 {
		t.Errorf("%d containers are listed, want 2", len(l))
	}
	n.stop()
	n.start()
	st, err := n.rt.PodSandboxStatus(t.Context(), sb, true)
	if err != nil || st.GetStatus().GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
		t.Fatalf("after a restart: %v, %v", st, err)
	}
	_, rest, _ := strings.Cut(st.GetInfo()["info"], `"infra":{"pid":`)
	digits, _, _ := strings.Cut(rest, ",")
	pid, err := strconv.Atoi(digits)
	if err != nil {
		t.Fatalf("%v of %v", err, st.GetInfo())
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{c, d} {
		if st := n.untilExited(t, id); st.GetExitCode() != 137 {
			t.Errorf("container of a dead namespace: %v", st)
		}
	}
	for deadline := time.Now().Add(time.Minute); st.GetStatus().GetState() != runtimeapi.PodSandboxState_SANDBOX_NOTREADY; time.Sleep(time.Millisecond) {
		if st, err = n.rt.PodSandboxStatus(t.Context(), sb, false); err != nil || time.Now().After(deadline) {
			t.Fatalf("sandbox: %v, %v", st, err)
		}
	}
}

func TestPIDNamespaceOfATarget(t *testing.T) {
	n := newShellNode(t)
	sb := n.pod(t, "p")
	c := n.run(t, sb, script("c", "exec busybox sleep 34567"))
	d := n.run(t, sb, script("d", "tr '\\0' ' ' < /proc/1/cmdline", withPID(runtimeapi.NamespaceMode_TARGET, c)))
	n.untilExited(t, d)
	n.untilLog(t, d, "sleep 34567")
	if err := n.rt.StopContainer(t.Context(), c, 0); err != nil {
		t.Fatal(err)
	}
	_, err := n.rt.CreateContainer(t.Context(), sb, script("e", "true", withPID(runtimeapi.NamespaceMode_TARGET, c)), nil)
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("target that has exited: %v", err)
	}
}

func TestOOM(t *testing.T) {
	n := newNode(t)
	if err := os.MkdirAll(n.logs(), 0o755); err != nil {
		t.Fatal(err)
	}
	sb := n.pod(t, "p")
	c := boxConfig("c", "alloc", "200", "sleep", "forever")
	c.Linux.Resources = &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 32 << 20}
	id := n.run(t, sb, c)
	if st := n.untilExited(t, id); st.GetReason() != "OOMKilled" || st.GetExitCode() != 137 {
		t.Errorf("%v", st)
	}
	killed := n.run(t, sb, boxConfig("d", "sleep", "forever"))
	if err := n.rt.StopContainer(t.Context(), killed, 0); err != nil {
		t.Fatal(err)
	}
	if st := n.untilExited(t, killed); st.GetReason() != "Error" || st.GetExitCode() != 137 {
		t.Errorf("killed by hand: %v", st)
	}
}

func TestStartErrorsNameTheCommand(t *testing.T) {
	n := newShellNode(t)
	sb := n.pod(t, "p")
	for _, command := range []string{"/no/such", "/tmp", "/bin/none"} {
		c := script(strings.ReplaceAll(command, "/", "-"), "")
		c.Command, c.Args = []string{command}, nil
		id := n.create(t, sb, c)
		err := n.rt.StartContainer(t.Context(), id)
		st := n.untilExited(t, id)
		if err == nil || !strings.Contains(err.Error(), command) || st.GetExitCode() != 128 || st.GetReason() != "StartError" || !strings.Contains(st.GetMessage(), command) {
			t.Errorf("%s: %v, %v", command, err, st)
		}
	}
}

// The agent goes, the container writes and ends: all is there afterwards.
func TestOutputOfTheTimeAway(t *testing.T) {
	n := newShellNode(t)
	sb := n.pod(t, "p")
	const size = 10_000_000
	c := n.run(t, sb, script("c", fmt.Sprintf("while ! test -e /tmp/go; do busybox sleep 1; done; yes 0123456 | head -c %d; exit 3", size)))
	n.stop()
	for _, d := range []string{"upper"} {
		if err := os.MkdirAll(filepath.Join(n.dir, "rt/containers", c, "rootfs", "tmp"), 0o755); err != nil {
			t.Fatal(d, err)
		}
	}
	if err := os.WriteFile(filepath.Join(n.dir, "rt/containers", c, "rootfs", "tmp", "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	exit := filepath.Join(n.state, "c", c, "exit")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(exit); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it never ends")
		}
	}
	n.start()
	if st := n.untilExited(t, c); st.GetExitCode() != 3 {
		t.Errorf("%v", st)
	}
	if got := strings.Count(n.readLog(t, c), " stdout F 0123456\n"); got != size/8 {
		t.Errorf("%d lines, want %d", got, size/8)
	}
}

// All of another boot has ended, with its own times, and nothing is left of it.
func TestAnotherBoot(t *testing.T) {
	n := newShellNode(t)
	sb := n.pod(t, "p")
	c := n.run(t, sb, script("c", "echo hello; sleep 10000"))
	n.untilLog(t, c, "hello")
	before, err := n.rt.ContainerStatus(t.Context(), c, false)
	if err != nil {
		t.Fatal(err)
	}
	// What a reboot does: the processes die, the tmpfs is empty, the boot has
	// another ID.
	n.stop()
	n.killMonitors()
	n.reboot(t, c)
	n.boot = "another"
	n.start()
	st := n.untilExited(t, c)
	if st.GetExitCode() != 255 || st.GetReason() != "Unknown" || st.GetStartedAt() != before.GetStatus().GetStartedAt() || st.GetFinishedAt() < st.GetStartedAt() ||
		st.GetFinishedAt() > time.Now().UnixNano() {
		t.Errorf("%v", st)
	}
	s, err := n.rt.PodSandboxStatus(t.Context(), sb, false)
	if err != nil || s.GetStatus().GetState() != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("%v, %v", s, err)
	}
}

// reboot ends what a container runs, and empties the tmpfs.
func (n *node) reboot(t *testing.T, id string) {
	t.Helper()
	pid, err := os.ReadFile(filepath.Join(n.state, "c", id, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := strconv.Atoi(strings.TrimSpace(string(pid)))
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Kill(p, unix.SIGKILL)
	mounts, _ := os.ReadFile("/proc/self/mounts")
	all := strings.Split(string(mounts), "\n")
	for i := len(all) - 1; i >= 0; i-- {
		f := strings.Fields(all[i])
		if len(f) > 1 && (strings.HasPrefix(f[1], n.state+"/") || strings.HasPrefix(f[1], filepath.Join(n.dir, "rt")+"/")) {
			_ = unix.Unmount(f[1], unix.MNT_DETACH)
		}
	}
	entries, _ := os.ReadDir(n.state)
	for _, e := range entries {
		_ = os.RemoveAll(filepath.Join(n.state, e.Name()))
	}
}

// The monitor is killed while a container writes: it goes on, its lines too, and
// its code is kept where the kernel keeps it. So do a terminal and an open stdin.
func TestMonitorIsKilled(t *testing.T) {
	n := newShellNode(t)
	sb := n.pod(t, "p")
	c := n.run(t, sb, script("c", "i=0; while ! test -e /tmp/go; do echo line $i; i=$((i+1)); busybox sleep 0.01; done; exit 9"))
	tty := n.run(t, sb, script("tty", "while read l; do echo got $l; done", func(c *runtimeapi.ContainerConfig) { c.Tty, c.Stdin = true, true }))
	n.untilLog(t, c, "line 3\n")
	n.killMonitors()
	before := strings.Count(n.readLog(t, c), "\n")
	n.untilLog(t, c, fmt.Sprintf("line %d\n", before+20))
	if st, err := n.rt.ContainerStatus(t.Context(), tty, false); err != nil || st.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Fatalf("the one with a terminal: %v, %v", st, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	in, typed := io.Pipe()
	attached := make(chan error, 1)
	go func() {
		attached <- n.rt.Streams().Attach(ctx, tty, localcri.AttachOptions{Stdin: in, Stdout: io.Discard})
	}()
	if _, err := typed.Write([]byte("hello\n")); err != nil {
		t.Error(err)
	}
	n.untilLog(t, tty, "got hello")
	cancel()
	_ = typed.Close()
	<-attached
	if _, _, err := n.rt.ExecSync(t.Context(), c, []string{"/bin/sh", "-c", "echo > /tmp/go"}, 0); err != nil {
		t.Fatal(err)
	}
	st := n.untilExited(t, c)
	if unknown := st.GetExitCode() == 255 && st.GetReason() == "MonitorLost"; st.GetExitCode() != 9 && !unknown {
		t.Errorf("%v", st)
	}
	if got := n.warned.FilterMessage("monitor of sandbox died; starting another one").Len(); got != 1 {
		t.Errorf("%d successors logged", got)
	}
}

// The root of a pod with a user namespace is nobody on the host, and its files
// are root's inside.
func TestUserNamespace(t *testing.T) {
	n := newShellNode(t)
	const base = 1 << 20
	mapping := []*runtimeapi.IDMapping{{HostId: base, ContainerId: 0, Length: 65536}}
	users := &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: mapping, Gids: mapping}
	sb := n.pod(t, "p", func(c *runtimeapi.PodSandboxConfig) { c.Linux.SecurityContext.NamespaceOptions.UsernsOptions = users })
	c, err := n.rt.CreateContainer(t.Context(), sb, script("c", "id -u; ls -ln /bin/busybox; echo x > /tmp/made; ls -ln /tmp/made; echo x > /etc/hostname && echo WRITTEN; sleep 10000",
		func(c *runtimeapi.ContainerConfig) { c.Linux.SecurityContext.NamespaceOptions.UsernsOptions = users }), nil)
	if status.Code(err) == codes.FailedPrecondition {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := n.rt.StartContainer(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	n.untilLog(t, c, "/tmp/made")
	log := n.readLog(t, c)
	if !strings.Contains(log, "stdout F 0\n") || strings.Contains(log, "65534") {
		t.Errorf("log %s", log)
	}
	fi, err := os.Stat(filepath.Join(n.dir, "rt/containers", c, "upper/tmp/made"))
	if err != nil {
		t.Fatal(err)
	}
	if st := fi.Sys().(*syscall.Stat_t); st.Uid != base {
		t.Errorf("on the host the file belongs to %d, want %d", st.Uid, base)
	}
}

// The kernel counts the layer of a pod with a user namespace, with removed files that are open.
func TestProjectOfALayer(t *testing.T) {
	buildAll(t) // other tests use it too, so it must not be on this disk
	t.Setenv("TMPDIR", quotatest.Disk(t))
	t.Run("pods", func(t *testing.T) {
		n := newShellNode(t)
		mapping := []*runtimeapi.IDMapping{{HostId: 1 << 20, ContainerId: 0, Length: 65536}}
		for _, users := range []*runtimeapi.UserNamespace{nil, {Mode: runtimeapi.NamespaceMode_POD, Uids: mapping, Gids: mapping}} {
			name := "host-users"
			if users != nil {
				name = "own-users"
			}
			sb := n.pod(t, name, func(c *runtimeapi.PodSandboxConfig) { c.Linux.SecurityContext.NamespaceOptions.UsernsOptions = users })
			c, err := n.rt.CreateContainer(t.Context(), sb, script("c", "echo x > /bin/cp; exec 3> /tmp/f; busybox rm /tmp/f; head -c 4000000 /dev/zero >&3; echo written; sleep 10000",
				func(c *runtimeapi.ContainerConfig) { c.Linux.SecurityContext.NamespaceOptions.UsernsOptions = users }), nil)
			if status.Code(err) == codes.FailedPrecondition {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := n.rt.StartContainer(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			n.untilLog(t, c, "stdout F written\n")
			work := filepath.Join(n.dir, "rt/containers", c, "work")
			if users == nil {
				if u, err := diskusage.Quota(work); !errors.Is(err, diskusage.ErrNoQuota) {
					t.Errorf("without a user namespace: %d bytes, %v", u.Used, err)
				}
				continue
			}
			s, err := n.rt.ContainerStats(t.Context(), c)
			if used := s.GetWritableLayer().GetUsedBytes().GetValue(); err != nil || used < 4_000_000 || used > 4_200_000 {
				t.Errorf("%d bytes, %v; want those of the removed file", used, err)
			}
			var info struct{ PID int }
			st, err := n.rt.ContainerStatus(t.Context(), c, true)
			if err := errors.Join(err, json.Unmarshal([]byte(st.GetInfo()["info"]), &info)); err != nil {
				t.Fatal(err)
			}
			held := diskusage.NewHeld("", 1<<20).Of([]string{strconv.Itoa(info.PID)})
			if len(held) != 1 || !held[0].Overlay || held[0].Work != work || held[0].Bytes < 4_000_000 {
				t.Errorf("%+v; want one file of an overlay with the workdir %s", held, work)
			}
		}
	})
}

// What must be there before a start is looked for, and named.
func TestStartWithoutALogDirectory(t *testing.T) {
	n := newNode(t)
	sb := n.pod(t, "p")
	c := n.create(t, sb, boxConfig("c", "exit", "0"))
	if err := os.RemoveAll(n.logs()); err != nil { // which the creation made
		t.Fatal(err)
	}
	err := n.rt.StartContainer(t.Context(), c)
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), n.logs()) {
		t.Errorf("error %v", err)
	}
	if err := os.MkdirAll(n.logs(), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := n.rt.StartContainer(t.Context(), c); err != nil {
		t.Errorf("with it: %v", err)
	}
	if st := n.untilExited(t, c); st.GetExitCode() != 0 {
		t.Errorf("%v", st)
	}
}

// A container that is stopped before it has its handler of the signal gets it afterwards, once.
func TestStopBeforeTheHandler(t *testing.T) {
	n := newShellNode(t)
	sb := n.pod(t, "p")
	c := n.run(t, sb, script("c", "echo begun; sleep 1; trap 'echo asked; sleep 1; exit 7' TERM; while true; do sleep 0.1; done"))
	n.untilLog(t, c, "begun")
	if err := n.rt.StopContainer(t.Context(), c, 600); err != nil {
		t.Fatal(err)
	}
	if st := n.untilExited(t, c); st.GetExitCode() != 7 || strings.Count(n.readLog(t, c), "asked") != 1 {
		t.Errorf("%v, log %s", st, n.readLog(t, c))
	}
}

// What tools read of a verbose status is there, and what nobody mounts.
func TestVerboseStatus(t *testing.T) {
	n := newShellNode(t)
	sb := n.pod(t, "p")
	shared := t.TempDir()
	c := n.run(t, sb, script("c", "cat /etc/hosts; cp /bin/busybox /m/b; /m/b true || echo refused; sleep 10000", func(c *runtimeapi.ContainerConfig) {
		c.LogPath = "below/c.log"
		c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/m", HostPath: shared, MountOptions: []string{"noexec"}}}
	}))
	n.untilLog(t, c, "refused")
	hosts, err := os.ReadFile("/etc/hosts")
	if line, _, _ := strings.Cut(string(hosts), "\n"); err == nil && !strings.Contains(n.readLog(t, c), line) {
		t.Errorf("/etc/hosts is not the host's: %s", n.readLog(t, c))
	}
	var info struct {
		PID         int
		RuntimeSpec struct{ Process struct{ Args []string } }
	}
	st, err := n.rt.ContainerStatus(t.Context(), c, true)
	if err != nil || json.Unmarshal([]byte(st.GetInfo()["info"]), &info) != nil || info.PID == 0 || len(info.RuntimeSpec.Process.Args) == 0 {
		t.Errorf("container: %v, %s", err, st.GetInfo())
	}
	if strings.Contains(st.GetInfo()["info"], `"state":`) { // scripts look for the one of the status
		t.Errorf("a second state: %s", st.GetInfo())
	}
	pid := info.PID
	pod, err := n.rt.PodSandboxStatus(t.Context(), sb, true)
	if err != nil || json.Unmarshal([]byte(pod.GetInfo()["info"]), &info) != nil || info.PID != pid {
		t.Errorf("sandbox: %v, %s, want the process %d", err, pod.GetInfo(), pid)
	}
}

// The pod's network is its containers', and the node's is a network as well.
func TestNetworks(t *testing.T) {
	n := newShellNode(t)
	sb := n.pod(t, "p")
	c := n.run(t, sb, script("c", "readlink /proc/self/ns/net; cat /etc/hostname; cat /proc/sys/net/ipv4/ip_unprivileged_port_start; exit 0"))
	n.untilExited(t, c)
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	n.untilLog(t, c, "stdout F 0\n")
	if log := n.readLog(t, c); strings.Contains(log, own) || !strings.Contains(log, "stdout F p\n") {
		t.Errorf("log %s", log)
	}
	host := n.pod(t, "h", func(c *runtimeapi.PodSandboxConfig) {
		c.Linux.SecurityContext.NamespaceOptions.Network = runtimeapi.NamespaceMode_NODE
	})
	d := n.run(t, host, script("d", "readlink /proc/self/ns/net"))
	n.untilExited(t, d)
	n.untilLog(t, d, own)
}

// Figures are those of the container, with their times.
func TestStats(t *testing.T) {
	n := newShellNode(t)
	sb := n.pod(t, "p")
	c := n.run(t, sb, script("c", "head -c 3000000 /dev/zero > /tmp/f; sleep 10000"))
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		s, err := n.rt.ContainerStats(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if s.GetAttributes().GetId() != c || s.GetCpu().GetTimestamp() == 0 || s.GetMemory().GetTimestamp() == 0 {
			t.Fatalf("%v", s)
		}
		if s.GetMemory().GetWorkingSetBytes().GetValue() > 0 && s.GetWritableLayer().GetUsedBytes().GetValue() > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v", s)
		}
	}
	// What a container writes into the sandbox's files counts for one container of it.
	other := n.run(t, sb, script("other", "head -c 5000000 /dev/zero > /etc/hostname; echo written; sleep 10000"))
	n.untilLog(t, other, "stdout F written\n")
	if err := exec.Command("sync", filepath.Join(n.dir, "rt", "sandboxes", sb, "hostname")).Run(); err != nil {
		t.Fatal(err)
	}
	for id, charged := range map[string]bool{c: true, other: false} {
		s, err := n.rt.ContainerStats(t.Context(), id)
		if used := s.GetWritableLayer().GetUsedBytes().GetValue(); err != nil || (used > 5_000_000) != charged {
			t.Errorf("%d bytes, %v; charged with the sandbox's files: %v", used, err, charged)
		}
	}
	p, err := n.rt.PodSandboxStats(t.Context(), sb)
	if err != nil || p.GetAttributes().GetId() != sb || len(p.GetLinux().GetContainers()) != 2 || p.GetLinux().GetMemory().GetTimestamp() == 0 {
		t.Errorf("%v, %v", p, err)
	}
	all, err := n.rt.ListPodSandboxMetrics(t.Context())
	if err != nil || len(all) != 1 || len(all[0].GetContainerMetrics()) != 2 || len(all[0].GetContainerMetrics()[0].GetMetrics()) == 0 {
		t.Errorf("%v, %v", all, err)
	}
	if d, err := n.rt.ListMetricDescriptors(t.Context()); err != nil || len(d) == 0 {
		t.Errorf("%d descriptors, %v", len(d), err)
	}
}

package network_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/network"
	"github.com/nodewright/nodewright/network/networktest"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

// machine is a Network with the kernel's namespaces.
type machine struct {
	*network.Network
	t      *testing.T
	dir    string
	plugin *networktest.Plugin
	stop   func()
}

func newMachine(t *testing.T) *machine {
	plugintest.RequireMounts(t)
	m := &machine{t: t, dir: t.TempDir(), plugin: &networktest.Plugin{Lasting: true}}
	t.Cleanup(func() { _ = unix.Unmount(filepath.Join(m.dir, "netns"), unix.MNT_DETACH) })
	m.start()
	return m
}

func (m *machine) start() {
	m.t.Helper()
	n, err := network.New(network.Config{
		Plugins: []network.Plugin{m.plugin}, StateDir: filepath.Join(m.dir, "state"), NetnsDir: filepath.Join(m.dir, "netns"),
	})
	if err != nil {
		m.t.Fatal(err)
	}
	m.Network, m.stop = n, testrun.Start(m.t, n.Run)
	if err := n.Detach(m.t.Context(), "unknown"); err != nil { // which waits for the records
		m.t.Fatal(err)
	}
}

func (m *machine) restart() {
	m.stop()
	m.start()
}

func (m *machine) attach(a network.Attachment) network.Result {
	m.t.Helper()
	r, err := m.Attach(m.t.Context(), a)
	if err != nil {
		m.t.Fatal(err)
	}
	return r
}

// mounts are those below the directory of namespaces.
func (m *machine) mounts() (out []string) {
	m.t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		m.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if at := strings.Fields(line)[4]; strings.HasPrefix(at, filepath.Join(m.dir, "netns")+"/") {
			out = append(out, at)
		}
	}
	return out
}

func TestOnTheKernel(t *testing.T) {
	m := newMachine(t)
	r := m.attach(pod("a"))
	if got := m.mounts(); len(got) != 1 || got[0] != r.Netns {
		t.Errorf("mounts %q", got)
	}
	var before, after syscall.Stat_t
	if err := syscall.Stat(r.Netns, &before); err != nil {
		t.Fatal(err)
	}
	m.restart()
	if err := syscall.Stat(r.Netns, &after); err != nil || before.Ino != after.Ino {
		t.Errorf("the namespace is another one, %v", err)
	}
	if got, ok := m.Get("a"); !ok || got.Netns != r.Netns {
		t.Errorf("%+v, %v", got, ok)
	}

	// Somebody unmounts it.
	if err := unix.Unmount(r.Netns, 0); err != nil {
		t.Fatal(err)
	}
	m.restart()
	if l := m.List(); len(l) != 1 || l[0].State != network.Lost {
		t.Errorf("%+v", l)
	}
	if err := m.Detach(t.Context(), "a"); err != nil {
		t.Error(err)
	}

	// Somebody mounts at the path.
	path := m.SpacePath("a")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("mine", path, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	_, err := m.Attach(t.Context(), pod("a"))
	wantCode(t, err, network.FailedPrecondition, path)
	m.restart()
	if got := m.mounts(); len(got) != 1 || got[0] != path {
		t.Errorf("mounts %q", got)
	}
	if err := unix.Unmount(path, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}

	// An agent of the past forgot one.
	stray := filepath.Join(m.dir, "netns", "nodewright-"+strings.Repeat("f", 32))
	if err := os.WriteFile(stray, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("/proc/self/ns/net", stray, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	m.restart()
	if left, err := os.ReadDir(filepath.Join(m.dir, "netns")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := m.plugin.Err(); err != nil {
		t.Error(err)
	}
}

// The caller may close its file while the network still needs it.
func TestUserNamespacesOnTheKernel(t *testing.T) {
	m := newMachine(t)
	cmd := exec.Command("/bin/sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 100000, Size: 1000}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 100000, Size: 1000}},
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("no user namespaces: %v", err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	owner, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	want, err := owner.Stat()
	if err != nil {
		t.Fatal(err)
	}
	m.plugin.SetHook(func(_ context.Context, call, _ string) error {
		if call == "Plan" {
			return owner.Close()
		}
		return nil
	})
	a := pod("a")
	a.UserNS = owner
	r := m.attach(a)
	m.plugin.SetHook(nil)
	space, err := os.Open(r.Netns)
	if err != nil {
		t.Fatal(err)
	}
	defer space.Close()
	fd, err := unix.IoctlRetInt(int(space.Fd()), unix.NS_GET_USERNS)
	if err != nil {
		t.Fatal(err)
	}
	of := os.NewFile(uintptr(fd), "owner")
	defer of.Close()
	if got, err := of.Stat(); err != nil || !os.SameFile(got, want) {
		t.Errorf("it belongs to another user namespace, %v", err)
	}
	if err := m.Detach(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	closed := pod("b")
	closed.UserNS = owner
	_, err = m.Attach(t.Context(), closed)
	wantCode(t, err, network.InvalidArgument, "UserNS")
}

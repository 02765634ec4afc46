package logind_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

// testTimeout is for what happens at once unless something is broken.
const testTimeout = 2 * time.Minute

func recv[T any](t *testing.T, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(testTimeout):
		t.Fatalf("no %s", what)
		panic("not reached")
	}
}

// daemon is a real dbus-daemon of the test's own.
type daemon struct {
	address string
	cmd     *exec.Cmd
}

func startDaemon(t *testing.T, socket string) *daemon {
	t.Helper()
	program, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("needs dbus-daemon")
	}
	config := filepath.Join(t.TempDir(), "bus.conf")
	err = os.WriteFile(config, fmt.Appendf(nil, `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path=%s</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/>
  </policy>
</busconfig>`, socket), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--config-file="+config, "--nofork", "--print-address=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d := &daemon{address: "unix:path=" + socket, cmd: cmd}
	t.Cleanup(d.stop)
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("dbus-daemon does not come up: %v", err)
	}
	return d
}

func (d *daemon) stop() {
	if d.cmd != nil {
		_ = d.cmd.Process.Kill()
		_ = d.cmd.Wait()
		d.cmd = nil
	}
}

// fakeLogind is a small logind: it has a delay, which it reads from its
// configuration when told to, and locks, which are pipes.
type fakeLogind struct {
	t    *testing.T
	conn *dbus.Conn
	conf string // its configuration; "" if nothing changes the delay

	mu       sync.Mutex
	delay    uint64 // µs
	down     bool
	reloads  int
	locked   chan int // the number of a lock that the other side has
	released chan int // of one that was let go of
	count    int
	own      []*os.File // pipes' ends that are on their way
}

func startLogind(t *testing.T, address, conf string, delay time.Duration) *fakeLogind {
	t.Helper()
	conn, err := dbus.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	f := &fakeLogind{t: t, conn: conn, conf: conf, delay: uint64(delay / time.Microsecond),
		locked: make(chan int, 16), released: make(chan int, 16)}
	export := func(methods map[string]any, path, iface string) {
		if err := conn.ExportMethodTable(methods, dbus.ObjectPath(path), iface); err != nil {
			t.Fatal(err)
		}
	}
	export(map[string]any{"Inhibit": f.inhibit}, "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
	export(map[string]any{"Get": f.get}, "/org/freedesktop/login1", "org.freedesktop.DBus.Properties")
	export(map[string]any{"KillUnit": f.killUnit}, "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")
	for _, name := range []string{"org.freedesktop.login1", "org.freedesktop.systemd1"} {
		if r, err := conn.RequestName(name, dbus.NameFlagDoNotQueue); err != nil || r != dbus.RequestNameReplyPrimaryOwner {
			t.Fatalf("name %s: %v, %v", name, r, err)
		}
	}
	return f
}

func (f *fakeLogind) inhibit(what, who, why, mode string) (dbus.UnixFD, *dbus.Error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return 0, dbus.NewError("org.freedesktop.login1.OperationInProgress", []any{"The operation inhibition has been requested for is already running"})
	}
	if what != "shutdown" || mode != "delay" || who == "" || why == "" {
		f.t.Errorf("Inhibit(%q, %q, %q, %q)", what, who, why, mode)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	f.count++
	n := f.count
	go func() {
		_, _ = r.Read(make([]byte, 1)) // ends when no one has the other end
		_ = r.Close()
		f.released <- n
	}()
	f.own = append(f.own, w)
	return dbus.UnixFD(w.Fd()), nil
}

// arrived is called when the other side has its locks: the pipes' ends here
// are of no use any more.
func (f *fakeLogind) arrived() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.own {
		_ = w.Close()
	}
	f.own = nil
	f.locked <- f.count
}

// override makes the delay what it is whatever the configuration says.
func (f *fakeLogind) override() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conf = ""
}

func (f *fakeLogind) get(_, name string) (dbus.Variant, *dbus.Error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch name {
	case "InhibitDelayMaxUSec":
		return dbus.MakeVariant(f.delay), nil
	case "PreparingForShutdown":
		return dbus.MakeVariant(f.down), nil
	}
	return dbus.Variant{}, dbus.MakeFailedError(fmt.Errorf("no property %s", name))
}

func (f *fakeLogind) killUnit(unit, who string, signal int32) *dbus.Error {
	if unit != "systemd-logind.service" || who != "all" || signal != 1 {
		f.t.Errorf("KillUnit(%q, %q, %d)", unit, who, signal)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reloads++
	raw, _ := os.ReadFile(f.conf)
	if m := regexp.MustCompile(`(?m)^\[Login\]\nInhibitDelayMaxSec=(\d+)$`).FindSubmatch(raw); m != nil {
		n, _ := strconv.ParseUint(string(m[1]), 10, 64)
		f.delay = n * 1e6
	}
	return nil
}

func (f *fakeLogind) prepare(down bool) {
	f.mu.Lock()
	f.down = down
	f.mu.Unlock()
	if err := f.conn.Emit("/org/freedesktop/login1", "org.freedesktop.login1.Manager.PrepareForShutdown", down); err != nil {
		f.t.Error(err)
	}
}

func (f *fakeLogind) timesReloaded() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reloads
}

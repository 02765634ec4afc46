package logind_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/node/logind"
	"github.com/nodewright/nodewright/node/shutdown"
	"github.com/nodewright/nodewright/podlife"
)

// rig is a bus, a logind on it, and one who watches.
type rig struct {
	t      *testing.T
	daemon *daemon
	logind *fakeLogind
	dir    string
	conf   string
	l      *logind.Machine
}

func newRig(t *testing.T, delay time.Duration) *rig {
	t.Helper()
	dir := t.TempDir()
	r := &rig{t: t, dir: filepath.Join(dir, "logind.conf.d")}
	r.conf = filepath.Join(r.dir, "99-kubelet.conf")
	r.daemon = startDaemon(t, filepath.Join(dir, "bus"))
	r.logind = startLogind(t, r.daemon.address, r.conf, delay)
	log := zap.New(zapcore.RegisterHooks(zapcore.NewCore(zapcore.NewJSONEncoder(zapcore.EncoderConfig{}), zapcore.AddSync(io.Discard), zap.InfoLevel),
		func(e zapcore.Entry) error {
			if e.Message == "shutdowns of the machine wait for pods" {
				r.logind.arrived()
			}
			return nil
		}))
	r.l = logind.New(logind.Config{Address: r.daemon.address, Dir: r.dir, Log: log})
	return r
}

// watch begins to watch; what it says and how it ends come in channels.
func (r *rig) watch(want time.Duration) (says chan bool, ended chan error, stop func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	says, ended = make(chan bool, 16), make(chan error, 1)
	go func() { ended <- r.l.Watch(ctx, want, func(down bool) { says <- down }) }()
	r.t.Cleanup(cancel)
	return says, ended, cancel
}

func (r *rig) says(ch chan bool, want bool) {
	r.t.Helper()
	if got := recv(r.t, "word of the machine", ch); got != want {
		r.t.Fatalf("the machine goes down: %v; want %v", got, want)
	}
}

func TestShutdownAndCallOff(t *testing.T) {
	r := newRig(t, 30*time.Second)
	says, ended, stop := r.watch(30 * time.Second)
	r.says(says, false)
	if n := recv(t, "lock", r.logind.locked); n != 1 {
		t.Fatalf("lock %d", n)
	}
	if _, err := os.Stat(r.conf); err == nil || r.logind.timesReloaded() != 0 {
		t.Error("the delay was raised though it is long enough")
	}

	r.logind.prepare(true)
	r.says(says, true)
	r.logind.prepare(false)
	r.says(says, false)
	recv(t, "second lock", r.logind.locked)
	if n := recv(t, "release of the first lock", r.logind.released); n != 1 {
		t.Errorf("lock %d is released; want the first", n)
	}

	r.logind.prepare(true)
	r.says(says, true)
	r.l.Release()
	if n := recv(t, "release", r.logind.released); n != 2 {
		t.Errorf("lock %d is released; want the second", n)
	}
	r.l.Release() // nothing is left to release

	r.logind.prepare(false)
	r.says(says, false)
	recv(t, "third lock", r.logind.locked)
	stop()
	if err := recv(t, "end of Watch", ended); err != nil {
		t.Errorf("Watch = %v", err)
	}
	if n := recv(t, "release at the end", r.logind.released); n != 3 {
		t.Errorf("lock %d is released; want the third", n)
	}
}

func TestRaise(t *testing.T) {
	r := newRig(t, 5*time.Second)
	file := func() string {
		raw, _ := os.ReadFile(r.conf)
		return string(raw)
	}
	watchOnce := func(want time.Duration) {
		t.Helper()
		says, ended, stop := r.watch(want)
		r.says(says, false)
		recv(t, "lock", r.logind.locked)
		stop()
		if err := recv(t, "end of Watch", ended); err != nil {
			t.Errorf("Watch = %v", err)
		}
	}
	watchOnce(29500 * time.Millisecond)
	if !strings.Contains(file(), "\n[Login]\nInhibitDelayMaxSec=30\n") || r.logind.timesReloaded() != 1 {
		t.Errorf("file %q, %d reloads", file(), r.logind.timesReloaded())
	}
	watchOnce(30 * time.Second)
	if n := r.logind.timesReloaded(); n != 1 {
		t.Errorf("%d reloads; want none for the same delay", n)
	}
	watchOnce(10 * time.Second) // another agent of the machine may need the 30 s
	if !strings.Contains(file(), "InhibitDelayMaxSec=30\n") || r.logind.timesReloaded() != 1 {
		t.Errorf("file %q, %d reloads", file(), r.logind.timesReloaded())
	}
}

func TestRaiseInVain(t *testing.T) {
	r := newRig(t, 5*time.Second)
	r.logind.override() // another file wins
	_, ended, _ := r.watch(30 * time.Second)
	err := recv(t, "end of Watch", ended)
	if err == nil || !strings.Contains(err.Error(), "InhibitDelayMaxSec is 5s") || !strings.Contains(err.Error(), "30s") {
		t.Errorf("Watch = %v; want what is and what is needed", err)
	}
}

func TestRaiseNotWritable(t *testing.T) {
	r := newRig(t, 5*time.Second)
	if err := os.WriteFile(r.dir, nil, 0o600); err != nil { // a file where the directory should be
		t.Fatal(err)
	}
	_, ended, _ := r.watch(30 * time.Second)
	if err := recv(t, "end of Watch", ended); err == nil || !strings.Contains(err.Error(), "99-kubelet.conf") {
		t.Errorf("Watch = %v; want the file's name", err)
	}
}

// An agent that starts during a shutdown is told, and asks for no lock.
func TestAlreadyGoingDown(t *testing.T) {
	r := newRig(t, 30*time.Second)
	r.logind.prepare(true)
	says, _, _ := r.watch(30 * time.Second)
	r.says(says, true)
	r.logind.prepare(false)
	r.says(says, false)
	recv(t, "lock", r.logind.locked)
}

// The lock outlasts the bus, three times over.
func TestBusRestarts(t *testing.T) {
	r := newRig(t, 30*time.Second)
	socket := strings.TrimPrefix(r.daemon.address, "unix:path=")
	says, ended, _ := r.watch(30 * time.Second)
	r.says(says, false)
	recv(t, "lock", r.logind.locked)
	for range 3 {
		old := r.logind
		r.daemon.stop()
		if err := recv(t, "end of Watch", ended); err == nil {
			t.Fatal("Watch ends without an error when the bus is gone")
		}
		if len(old.released) != 0 {
			t.Fatal("the lock is gone with the bus")
		}
		r.daemon = startDaemon(t, socket)
		r.logind = startLogind(t, r.daemon.address, r.conf, 30*time.Second)
		says, ended, _ = r.watch(30 * time.Second)
		r.says(says, false)
		recv(t, "new lock", r.logind.locked)
		recv(t, "release of the old lock", old.released)
	}
	r.logind.prepare(true)
	r.says(says, true)
}

func TestNoBus(t *testing.T) {
	l := logind.New(logind.Config{Address: "unix:path=" + filepath.Join(t.TempDir(), "none")})
	if err := l.Watch(t.Context(), time.Second, func(bool) {}); err == nil || !strings.Contains(err.Error(), "D-Bus") {
		t.Errorf("Watch = %v", err)
	}
}

type onePod struct{ killed chan int64 }

func (p *onePod) Active() []*v1.Pod { return []*v1.Pod{{}} }

func (p *onePod) Kill(_ context.Context, _ *v1.Pod, why podlife.Cause) error {
	p.killed <- *why.Grace
	return nil
}

// All of it together: logind says that the machine goes down, the pod is
// killed, and then only the machine may go.
func TestManager(t *testing.T) {
	r := newRig(t, 30*time.Second)
	pods := &onePod{killed: make(chan int64)}
	m, err := shutdown.New(shutdown.Config{Requested: 30 * time.Second, Critical: 10 * time.Second, Machine: r.l, Pods: pods, Killer: pods})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	recv(t, "lock", r.logind.locked)
	r.logind.prepare(true)
	if g := recv(t, "kill", pods.killed); g != 20 {
		t.Errorf("grace %d; want 20", g)
	}
	recv(t, "release", r.logind.released)
	if _, _, ok := m.Admit(); ok {
		t.Error("a pod is admitted")
	}
	cancel()
	if err := recv(t, "end of Run", done); err != nil {
		t.Errorf("Run = %v", err)
	}
}

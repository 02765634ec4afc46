//go:build linux

package localcri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/localcri/image"
	"github.com/nodewright/nodewright/localcri/internal/executor"
	"github.com/nodewright/nodewright/localcri/internal/life"
	"github.com/nodewright/nodewright/localcri/internal/monitor"
	"github.com/nodewright/nodewright/localcri/internal/ocispec"
	"github.com/nodewright/nodewright/localcri/internal/spaces"
	"github.com/nodewright/nodewright/localcri/internal/usage"
	"github.com/nodewright/nodewright/network"
)

// machine is all that a Runtime uses, in memory.
type machine struct {
	*world
	crash *crash // of the runtime that uses it; may be nil
}

// world outlives runtimes, as a machine does agents.
type world struct {
	mu        sync.Mutex
	pid       int
	processes map[int]*fakeProcess
	monitors  map[string]*fakeMonitor // that run, by sandbox
	networks  map[string]bool
	noAddress bool // the network gives pods no address
	pins      map[string]bool
	mounts    map[string]bool
	leases    map[string]bool
	created   map[string]executor.Status // of the executor, by ID
	executed  map[string]int             // PIDs
	signals   []unix.Signal
	launches  int
	quits     int

	commandsEnded map[string]bool // containers whose commands of a lost monitor were ended

	codes map[string]int32 // of containers that have ended

	fail    map[string]error         // by step
	hang    map[string]chan struct{} // by step, until closed
	waiting map[string]int           // by step, how many came to it while it hung
}

type fakeProcess struct {
	start    uint64
	state    string
	onSignal func(s unix.Signal)
}

func newMachine() *machine {
	return &machine{world: &world{
		pid: 100, processes: map[int]*fakeProcess{}, monitors: map[string]*fakeMonitor{}, networks: map[string]bool{}, pins: map[string]bool{},
		mounts: map[string]bool{}, leases: map[string]bool{}, created: map[string]executor.Status{}, executed: map[string]int{}, codes: map[string]int32{}, commandsEnded: map[string]bool{},
		fail: map[string]error{}, hang: map[string]chan struct{}{}, waiting: map[string]int{},
	}}
}

// crash is when an agent is killed: nothing that it does after so many changes of the
// machine and the disk has an effect.
type crash struct {
	mu    sync.Mutex
	after int // changes that are left; not before there are any
	dead  bool
	pause func() // before a change
}

var errCrashed = errors.New("the agent is dead")

// point is before a change.
func (c *crash) point() error {
	if c == nil {
		return nil
	}
	c.pause()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.after > 0 {
		c.after--
		c.dead = c.dead || c.after == 0
	}
	if c.dead {
		return errCrashed
	}
	return nil
}

func (c *crash) isDead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

// step fails or hangs as the test says.
func (m *machine) step(ctx context.Context, name string) error {
	if err := m.crash.point(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	err, hang := m.fail[name], m.hang[name]
	if hang != nil {
		m.waiting[name]++
	}
	m.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

// isHeld reports whether somebody has come to a step that hangs.
func (m *machine) isHeld(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.waiting[name] > 0
}

func (m *machine) setFail(name string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail[name] = err
}

func (m *machine) hold(name string) (release func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ch := make(chan struct{})
	m.hang[name] = ch
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.hang, name)
		close(ch)
	}
}

// spawn makes a process. The caller holds m.mu.
func (m *machine) spawn() int {
	m.pid++
	m.processes[m.pid] = &fakeProcess{start: uint64(m.pid) * 10, state: "S"}
	return m.pid
}

// The network.

type fakeNetwork struct{ m *machine }

// Loaded is closed when the test releases the step.
func (n fakeNetwork) Loaded() <-chan struct{} {
	loaded := make(chan struct{})
	go func() {
		if n.m.step(context.Background(), "load network") == nil {
			close(loaded)
		}
	}()
	return loaded
}

func (n fakeNetwork) Attach(ctx context.Context, a network.Attachment) (network.Result, error) {
	if err := n.m.step(ctx, "attach"); err != nil {
		return network.Result{}, err
	}
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	n.m.networks[a.ID] = true
	return n.result(a.ID), nil
}

// result is the attachment of a pod. The caller holds m.mu.
func (n fakeNetwork) result(id string) network.Result {
	r := network.Result{Netns: "/run/netns/" + id[:8]}
	if !n.m.noAddress {
		r.IPs = []netip.Addr{netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("fd00::7")}
	}
	return r
}

func (n fakeNetwork) Detach(ctx context.Context, id string) error {
	if err := n.m.step(ctx, "detach"); err != nil {
		return err
	}
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	delete(n.m.networks, id)
	return nil
}

func (n fakeNetwork) Get(id string) (network.Result, bool) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	return n.result(id), n.m.networks[id]
}

func (n fakeNetwork) List() []network.Info {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	var out []network.Info
	for id := range n.m.networks {
		out = append(out, network.Info{ID: id})
	}
	return out
}

func (n fakeNetwork) Status() error { return n.m.step(context.Background(), "network status") }

// The images.

type fakeImages struct{ m *machine }

func (i fakeImages) Use(ctx context.Context, ref, owner string) (image.Rootfs, error) {
	if err := i.m.step(ctx, "use"); err != nil {
		return image.Rootfs{}, err
	}
	i.m.mu.Lock()
	defer i.m.mu.Unlock()
	i.m.leases[owner] = true
	return image.Rootfs{Image: "sha256:" + ref, Layers: []string{"/a", "/b"}, Mode: 0o755, Defaults: image.Defaults{Entrypoint: []string{"/bin"}}}, nil
}

func (i fakeImages) Release(owner string) error {
	if err := i.m.step(context.Background(), "release"); err != nil {
		return err
	}
	i.m.mu.Lock()
	defer i.m.mu.Unlock()
	delete(i.m.leases, owner)
	return nil
}

func (i fakeImages) Owners(context.Context) ([]string, error) {
	i.m.mu.Lock()
	defer i.m.mu.Unlock()
	return slices.Sorted(maps.Keys(i.m.leases)), nil
}

// Monitors: the process, and clients of it.

type fakeMonitor struct {
	pid     int
	kept    map[string]*monitor.Kept
	order   []string
	clients []*fakeClient
	dead    chan struct{}
}

type fakeClient struct {
	m      *machine
	p      *fakeMonitor
	events chan monitor.Event
	done   chan struct{}
	once   sync.Once
}

type fakeMonitors struct{ m *machine }

func (f fakeMonitors) Launch(ctx context.Context, sandbox string) (monitorConn, error) {
	if err := f.m.step(ctx, "launch"); err != nil {
		return nil, err
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	p := f.m.monitors[sandbox]
	if p == nil {
		f.m.launches++
		p = &fakeMonitor{pid: f.m.spawn(), kept: map[string]*monitor.Kept{}, dead: make(chan struct{})}
		f.m.monitors[sandbox] = p
	}
	return p.client(f.m), nil
}

func (f fakeMonitors) Connect(ctx context.Context, sandbox string) (monitorConn, monitor.State, error) {
	if err := f.m.step(ctx, "connect"); err != nil {
		return nil, monitor.State{}, err
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	p := f.m.monitors[sandbox]
	if p == nil {
		return nil, monitor.State{}, monitor.ErrGone
	}
	var s monitor.State
	for _, id := range p.order {
		if k := p.kept[id]; k != nil {
			s.Containers = append(s.Containers, *k)
		}
	}
	return p.client(f.m), s, nil
}

func (p *fakeMonitor) client(m *machine) *fakeClient {
	c := &fakeClient{m: m, p: p, events: make(chan monitor.Event, 1000), done: make(chan struct{})}
	p.clients = append(p.clients, c)
	return c
}

func (c *fakeClient) Start(ctx context.Context, mc monitor.Container) (monitor.Started, error) {
	m := c.m
	m.mu.Lock()
	select {
	case <-c.p.dead:
		m.mu.Unlock()
		return monitor.Started{}, monitor.ErrGone
	default:
	}
	if c.p.kept[mc.ID] == nil {
		c.p.kept[mc.ID] = &monitor.Kept{Container: mc}
		c.p.order = append(c.p.order, mc.ID)
	}
	k := c.p.kept[mc.ID]
	m.mu.Unlock()
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-c.p.dead:
			cancel()
		case <-wait.Done():
		}
	}()
	if err := m.step(wait, "start"); err != nil {
		if wait.Err() != nil {
			return monitor.Started{}, monitor.ErrGone
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		var se *monitor.StartError
		if errors.As(err, &se) {
			k.StartError = se
		}
		return monitor.Started{}, err
	}
	m.mu.Lock()
	if k.Started == nil {
		m.run(mc.ID, k)
	}
	answer := *k.Started
	m.mu.Unlock()
	return answer, m.step(ctx, "answer to start")
}

// run has a container's process begin. The caller holds m.mu.
func (m *machine) run(id string, k *monitor.Kept) {
	pid := m.spawn()
	m.executed[id], m.created[id] = pid, executor.Running
	p := m.processes[pid]
	p.onSignal = func(s unix.Signal) {
		if s == unix.SIGKILL && p.state != "D" {
			m.endLocked(id, 137)
		}
	}
	k.Started = &monitor.Started{PID: pid, StartTime: p.start, At: time.Now()}
}

// end has a container's process end by itself.
func (m *machine) end(id string, code int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.endLocked(id, code)
}

func (m *machine) endLocked(id string, code int32) {
	pid := m.executed[id]
	if m.processes[pid] == nil {
		return
	}
	delete(m.processes, pid)
	m.created[id], m.codes[id] = executor.Stopped, code
	for _, p := range m.monitors {
		k := p.kept[id]
		if k == nil || k.Exit != nil {
			continue
		}
		k.Exit = &monitor.Exit{ID: id, Code: code, At: time.Now()}
		for _, c := range p.clients {
			select {
			case <-c.done:
			default:
				c.events <- monitor.Event{Exit: k.Exit}
			}
		}
	}
}

// killMonitor ends the monitor of a sandbox.
func (m *machine) killMonitor(sandbox string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.monitors[sandbox]
	delete(m.monitors, sandbox)
	delete(m.processes, p.pid)
	close(p.dead)
	for _, c := range p.clients {
		c.once.Do(func() { close(c.done) })
	}
}

func (c *fakeClient) Adopt(ctx context.Context, k monitor.Kept, files monitor.Files) error {
	if err := c.m.step(ctx, "adopt"); err != nil {
		return err
	}
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	select {
	case <-c.p.dead:
		return monitor.ErrGone
	default:
	}
	if c.p.kept[k.Container.ID] != nil {
		return monitor.ErrExists
	}
	c.p.kept[k.Container.ID] = &k
	c.p.order = append(c.p.order, k.Container.ID)
	if c.m.processes[k.Started.PID] == nil {
		k.Exit = &monitor.Exit{ID: k.Container.ID, Code: 255, At: time.Now(), Reason: monitor.ReasonMonitorLost}
		if files.Pidfd != nil {
			k.Exit = &monitor.Exit{ID: k.Container.ID, Code: c.m.codes[k.Container.ID], At: time.Now()}
		}
		c.events <- monitor.Event{Exit: k.Exit}
	}
	return nil
}

// Files stands for the descriptors that a client keeps.
func (c *fakeClient) Files(id string) (files monitor.Files) {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if k := c.p.kept[id]; k != nil && k.Started != nil {
		files.Pidfd, _ = os.Open(os.DevNull)
	}
	return files
}

func (c *fakeClient) Exec(context.Context, monitor.Exec) (execProcess, error) {
	return nil, errors.New("no exec here")
}

func (c *fakeClient) Attach(context.Context, string, *os.File, *os.File, *os.File) error { return nil }
func (c *fakeClient) Resize(context.Context, string, uint16, uint16) error               { return nil }
func (c *fakeClient) ReopenLog(context.Context, string, string) error                    { return nil }

func (c *fakeClient) Keep(ctx context.Context, id string, record []byte) error {
	if err := c.m.step(ctx, "keep"); err != nil {
		return err
	}
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if k := c.p.kept[id]; k != nil {
		k.Container.Record = record
	}
	return nil
}

func (c *fakeClient) Forget(ctx context.Context, id string) error {
	if err := c.m.step(ctx, "forget"); err != nil {
		return err
	}
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	k := c.p.kept[id]
	switch {
	case k == nil:
		return monitor.ErrUnknown
	case k.Started != nil && k.Exit == nil:
		return monitor.ErrRunning
	}
	delete(c.p.kept, id)
	return nil
}

func (c *fakeClient) Quit(ctx context.Context) error {
	m := c.m
	if err := m.step(ctx, "quit"); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range c.p.kept {
		if k.Started != nil && k.Exit == nil {
			return monitor.ErrRunning
		}
	}
	for sandbox, p := range m.monitors {
		if p == c.p {
			delete(m.monitors, sandbox)
			delete(m.processes, p.pid)
			m.quits++
			close(p.dead)
			for _, c := range p.clients {
				c.once.Do(func() { close(c.done) })
			}
		}
	}
	return nil
}

func (c *fakeClient) Close()                       { c.once.Do(func() { close(c.done) }) }
func (c *fakeClient) Events() <-chan monitor.Event { return c.events }
func (c *fakeClient) Done() <-chan struct{}        { return c.done }
func (c *fakeClient) PID() int                     { return c.p.pid }

// The executor, whose commands monitors run.

type fakeExecutor struct{ m *machine }

func (fakeExecutor) Create(c executor.Creation) []string { return []string{"/runc", "create", c.ID} }
func (fakeExecutor) Start(id, _ string) []string         { return []string{"/runc", "start", id} }
func (fakeExecutor) Exec(x executor.Execution) []string  { return []string{"/runc", "exec", x.ID} }

func (x fakeExecutor) Features(ctx context.Context) (executor.Features, error) {
	return executor.Features{Version: "fake", Seccomp: true, IDMap: true, UserNamespaces: true}, x.m.step(ctx, "features")
}

func (x fakeExecutor) State(_ context.Context, id string) (executor.State, error) {
	x.m.mu.Lock()
	defer x.m.mu.Unlock()
	s, ok := x.m.created[id]
	if !ok {
		return executor.State{}, executor.ErrNotExist
	}
	return executor.State{ID: id, Status: s, PID: x.m.executed[id], Since: time.Now()}, nil
}

func (x fakeExecutor) Update(ctx context.Context, _ string, _ *specs.LinuxResources) error {
	return x.m.step(ctx, "update")
}

func (x fakeExecutor) Delete(ctx context.Context, id string, _ bool) error {
	if err := x.m.step(ctx, "delete"); err != nil {
		return err
	}
	x.m.end(id, 137)
	x.m.mu.Lock()
	defer x.m.mu.Unlock()
	delete(x.m.created, id)
	return nil
}

// The rest.

type fakeSpaces struct{ m *machine }

func (s fakeSpaces) Make(ctx context.Context, q spaces.Request) (spaces.Paths, error) {
	if err := s.m.step(ctx, "spaces"); err != nil {
		return spaces.Paths{}, err
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.m.pins[q.ID] = true
	return s.paths(q.ID), nil
}

func (fakeSpaces) paths(id string) spaces.Paths {
	return spaces.Paths{IPC: "/ns/" + id + ".ipc", UTS: "/ns/" + id + ".uts", Shm: "/shm/" + id}
}

func (s fakeSpaces) Look(id string) (spaces.Paths, error) { return s.paths(id), nil }
func (s fakeSpaces) OpenUser(id string) (*os.File, error) { return nil, fs.ErrNotExist }
func (s fakeSpaces) SetSysctls(ctx context.Context, _, _ string, _ map[string]string) error {
	return s.m.step(ctx, "sysctls")
}

func (s fakeSpaces) HoldSys(ctx context.Context, _, _ string) error { return s.m.step(ctx, "sysfs") }

func (s fakeSpaces) Remove(ctx context.Context, id string) error {
	if err := s.m.step(ctx, "remove spaces"); err != nil {
		return err
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	delete(s.m.pins, id)
	return nil
}

func (s fakeSpaces) List() ([]string, error) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	return slices.Collect(maps.Keys(s.m.pins)), nil
}

type fakeFacts struct{ m *machine }

func (f fakeFacts) Machine(context.Context) (ocispec.Machine, error) {
	return ocispec.Machine{Capabilities: []string{"CAP_CHOWN"}, Seccomp: func(*specs.Spec) (*specs.LinuxSeccomp, error) { return nil, nil }}, nil
}

func (f fakeFacts) Sources(_ context.Context, mounts []*runtimeapi.Mount) ([]ocispec.Source, error) {
	return make([]ocispec.Source, len(mounts)), nil
}

func (f fakeFacts) Devices(_ context.Context, devices []*runtimeapi.Device) ([][]ocispec.Device, error) {
	return make([][]ocispec.Device, len(devices)), nil
}

func (f fakeFacts) HostDevices(context.Context) ([]ocispec.Device, error) { return nil, nil }

func (f fakeFacts) Users(context.Context, string) (passwd, group []byte, err error) {
	return nil, nil, nil
}

type fakeUsage struct{ m *machine }

func (u fakeUsage) Container(context.Context, string, usage.Layer) (*runtimeapi.ContainerStats, error) {
	return &runtimeapi.ContainerStats{}, nil
}

func (u fakeUsage) Pod(context.Context, string, string) (*runtimeapi.LinuxPodSandboxStats, error) {
	return &runtimeapi.LinuxPodSandboxStats{}, nil
}

func (u fakeUsage) ContainerMetrics(context.Context, string, usage.Layer, time.Time, usage.Labels) ([]*runtimeapi.Metric, error) {
	return nil, nil
}

func (u fakeUsage) PodMetrics(context.Context, string, string, time.Time, usage.Labels) ([]*runtimeapi.Metric, error) {
	return nil, nil
}

func (u fakeUsage) KillCgroup(ctx context.Context, cgroup string) error {
	if err := u.m.step(ctx, "kill cgroup"); err != nil {
		return err
	}
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	id := filepath.Base(cgroup)
	if p := u.m.processes[u.m.executed[id]]; p != nil && p.state != "D" {
		u.m.endLocked(id, 137)
	}
	return nil
}

func (u fakeUsage) OOMFile(cgroup string) string { return filepath.Join("/cg", cgroup) }

func (u fakeUsage) Forward(context.Context, string, int32, io.ReadWriteCloser) error { return nil }

type fakeMounts struct{ m *machine }

func (f fakeMounts) Private(string) error { return nil }

func (f fakeMounts) Overlay(_ image.Overlay, target string) error {
	if err := f.m.step(context.Background(), "mount"); err != nil {
		return err
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.m.mounts[target] = true
	return nil
}

func (f fakeMounts) Mapped(string, string, *os.File) error { return nil }

func (f fakeMounts) Unmount(target string) error {
	if err := f.m.step(context.Background(), "unmount"); err != nil {
		return err
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	delete(f.m.mounts, target)
	return nil
}

type fakeProcesses struct{ m *machine }

func (f fakeProcesses) Start(pid int) (uint64, string, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	p := f.m.processes[pid]
	if p == nil {
		return 0, "", fs.ErrNotExist
	}
	return p.start, p.state, nil
}

func (f fakeProcesses) EndCommands(_ context.Context, _, word string) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.m.commandsEnded[word] = true
	return nil
}

func (f fakeProcesses) Signal(id life.Process, s unix.Signal) error {
	if err := f.m.step(context.Background(), "signal"); err != nil {
		return err
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	p := f.m.processes[id.PID]
	if p == nil || p.start != id.StartTime {
		return unix.ESRCH
	}
	f.m.signals = append(f.m.signals, s)
	if p.onSignal != nil {
		p.onSignal(s)
	}
	return nil
}

// bench is a machine, directories, and a runtime that can be killed.
type bench struct {
	*machine
	t     testing.TB
	root  string
	state string
	boot  string
	hooks Hooks // may be nil
	rt    *Runtime
	logs  *observer.ObservedLogs // of rt
	kill  func()
}

func newBench(t testing.TB) *bench {
	t.Helper()
	dir := t.TempDir()
	state, err := os.MkdirTemp("/tmp", "lc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(state) })
	b := &bench{machine: newMachine(), t: t, root: filepath.Join(dir, "root"), state: state, boot: "boot-1"}
	if err := os.WriteFile(filepath.Join(dir, "monitor"), []byte("program"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.start()
	t.Cleanup(func() { b.kill() })
	return b
}

// untilEnd takes the log of a test until its end: what hangs is not waited for, and
// may have something to say later.
type untilEnd struct {
	testing.TB
	mu    sync.Mutex
	ended bool
}

func logUntilEnd(t testing.TB, also zapcore.Core) *zap.Logger {
	u := &untilEnd{TB: t}
	t.Cleanup(func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.ended = true
	})
	return zaptest.NewLogger(u, zaptest.WrapOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core { return zapcore.NewTee(c, also) })))
}

func (u *untilEnd) Logf(format string, args ...any) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.ended {
		u.TB.Logf(format, args...)
	}
}

// start starts a runtime on the machine as it is.
func (b *bench) start() {
	b.t.Helper()
	m := &machine{world: b.world, crash: b.crash}
	core, logs := observer.New(zap.WarnLevel)
	b.logs = logs
	cfg := Config{
		RootDir: b.root, StateDir: b.state, Handlers: map[string]Handler{"runc": {Path: "/runc"}}, Monitor: filepath.Join(filepath.Dir(b.root), "monitor"),
		Network: fakeNetwork{m}, Images: fakeImages{m}, BootID: b.boot, Hooks: b.hooks, Reserve: 1, Log: logUntilEnd(b.t, core),
		parts: parts{
			monitors: fakeMonitors{m}, executors: map[string]ociRuntime{"runc": fakeExecutor{m}}, spaces: fakeSpaces{m}, facts: fakeFacts{m},
			usage: fakeUsage{m}, forwarder: fakeUsage{m}, mounts: fakeMounts{m}, processes: fakeProcesses{m},
		},
	}
	rt, err := New(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	b.rt, b.kill = rt, testrun.Start(b.t, rt.Run)
}

// restart is another agent on the same machine.
func (b *bench) restart() {
	b.kill()
	b.start()
}

// reboot is another boot of the machine: all processes and mounts are gone.
func (b *bench) reboot() {
	b.kill()
	b.mu.Lock()
	b.processes, b.monitors, b.mounts, b.pins = map[int]*fakeProcess{}, map[string]*fakeMonitor{}, map[string]bool{}, map[string]bool{}
	b.created, b.executed = map[string]executor.Status{}, map[string]int{}
	b.mu.Unlock()
	b.boot += "+"
	_ = os.RemoveAll(b.state)
	b.start()
}

func sandboxConfig(name string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "ns", Uid: "uid-" + name}, Hostname: name,
		Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
		}},
	}
}

func containerConfig(name string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name}, Image: &runtimeapi.ImageSpec{Image: "img"}, Labels: map[string]string{"l": name},
		Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
		}},
	}
}

func (b *bench) sandbox(name string) string {
	b.t.Helper()
	id, err := b.rt.RunPodSandbox(b.t.Context(), sandboxConfig(name), "")
	if err != nil {
		b.t.Fatalf("RunPodSandbox: %v", err)
	}
	return id
}

func (b *bench) container(sandbox, name string) string {
	b.t.Helper()
	id, err := b.rt.CreateContainer(b.t.Context(), sandbox, containerConfig(name), nil)
	if err != nil {
		b.t.Fatalf("CreateContainer: %v", err)
	}
	return id
}

func (b *bench) running(sandbox, name string) string {
	b.t.Helper()
	id := b.container(sandbox, name)
	if err := b.rt.StartContainer(b.t.Context(), id); err != nil {
		b.t.Fatalf("StartContainer: %v", err)
	}
	return id
}

func (b *bench) status(id string) *runtimeapi.ContainerStatus {
	b.t.Helper()
	s, err := b.rt.ContainerStatus(b.t.Context(), id, false)
	if err != nil {
		b.t.Fatalf("ContainerStatus: %v", err)
	}
	return s.GetStatus()
}

func (b *bench) podState(id string) runtimeapi.PodSandboxState {
	b.t.Helper()
	s, err := b.rt.PodSandboxStatus(b.t.Context(), id, false)
	if err != nil {
		b.t.Fatalf("PodSandboxStatus: %v", err)
	}
	return s.GetStatus().GetState()
}

// until waits for something that is about to happen.
func (b *bench) until(what string, ok func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("never: %s", what)
		}
	}
}

func (b *bench) untilExited(id string) *runtimeapi.ContainerStatus {
	b.t.Helper()
	b.until("container exits", func() bool { return b.status(id).GetState() == runtimeapi.ContainerState_CONTAINER_EXITED })
	return b.status(id)
}

// clean fails if anything is left on the machine.
func (b *bench) clean() {
	b.t.Helper()
	left := func() string {
		b.mu.Lock()
		defer b.mu.Unlock()
		var out []string
		for what, n := range map[string]int{
			"processes": len(b.processes), "monitors": len(b.monitors), "networks": len(b.networks), "pins": len(b.pins), "mounts": len(b.mounts),
			"leases": len(b.leases), "created": len(b.created),
		} {
			if n > 0 {
				out = append(out, fmt.Sprintf("%d %s", n, what))
			}
		}
		for _, d := range []string{
			filepath.Join(b.root, recordsDir, sandboxesDir), filepath.Join(b.root, recordsDir, containersDir),
			filepath.Join(b.root, sandboxesDir), filepath.Join(b.root, containersDir), filepath.Join(b.state, streamsDir),
		} {
			entries, err := os.ReadDir(d)
			if err != nil {
				out = append(out, err.Error())
			}
			for _, e := range entries {
				if !strings.Contains(e.Name(), ".corrupt-") {
					out = append(out, filepath.Join(d, e.Name()))
				}
			}
		}
		return strings.Join(out, ", ")
	}
	deadline := time.Now().Add(time.Minute)
	for left() != "" && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	if l := left(); l != "" {
		b.t.Errorf("left: %s", l)
	}
}

func wantCode(t testing.TB, what string, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

//go:build linux

package nri_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/log"
	"github.com/containerd/nri/pkg/stub"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/localcri"
	"github.com/nodewright/nodewright/localcri/nri"
)

func TestMain(m *testing.M) {
	adaptation.SetPluginRequestTimeout(time.Second)
	os.Exit(m.Run())
}

// host is a runtime with one pod and one container.
type host struct {
	mu      sync.Mutex
	updates []localcri.HookUpdate
	fail    error
}

func somePod() localcri.HookPod {
	return localcri.HookPod{ID: "pod", Netns: "/run/netns/p", IPs: []string{"10.0.0.7"}, Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "ns", Uid: "u"}, Annotations: map[string]string{"a": "b"},
		Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: "/kubepods/p"},
	}}
}

func someContainer(id string) localcri.HookContainer {
	return localcri.HookContainer{
		PodID: "pod", Config: &runtimeapi.ContainerConfig{},
		Status: &runtimeapi.ContainerStatus{Id: id, Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, State: runtimeapi.ContainerState_CONTAINER_CREATED},
		Spec:   someSpec(),
	}
}

func someSpec() *specs.Spec {
	return &specs.Spec{
		Version: "1.0.2", Root: &specs.Root{Path: "/rootfs"}, Process: &specs.Process{Args: []string{"/bin/sh"}, Env: []string{"A=1", "B=2"}},
		Mounts: []specs.Mount{{Destination: "/proc", Type: "proc"}, {Destination: "/data/x", Type: "bind", Source: "/x"}},
		Linux:  &specs.Linux{CgroupsPath: "/kubepods/p/c", Namespaces: []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}}},
	}
}

func (*host) Snapshot(context.Context) ([]localcri.HookPod, []localcri.HookContainer) {
	return []localcri.HookPod{somePod()}, []localcri.HookContainer{someContainer("old")}
}

func (h *host) Update(_ context.Context, u localcri.HookUpdate) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.updates = append(h.updates, u)
	return h.fail
}

func (*host) Inject(_ context.Context, s *specs.Spec, names []string) error {
	if names[0] == "v.com/c=none" {
		return errors.New("device v.com/c=none is unknown")
	}
	s.Process.Env = append(s.Process.Env, "CDI="+strings.Join(names, ","))
	return nil
}

// until waits for an update of a container.
func (h *host) until(t *testing.T, id string) localcri.HookUpdate {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		h.mu.Lock()
		i := slices.IndexFunc(h.updates, func(u localcri.HookUpdate) bool { return u.ContainerID == id })
		if i >= 0 {
			defer h.mu.Unlock()
			return h.updates[i]
		}
		h.mu.Unlock()
	}
	t.Fatalf("no update of %s", id)
	return localcri.HookUpdate{}
}

// serve runs plugins on a socket until the test, or the returned function, ends them.
func serve(t *testing.T, cfg nri.Config, h localcri.HookHost) (*nri.Plugins, func()) {
	t.Helper()
	if cfg.Log == nil {
		cfg.Log = zaptest.NewLogger(t)
	}
	p, err := nri.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	stop := testrun.Start(t, func(ctx context.Context) error { return p.Run(ctx, h) })
	if _, err := p.Event(t.Context(), localcri.HookPodRun, somePod(), nil); err != nil { // waits until it is served
		t.Fatal(err)
	}
	return p, stop
}

// plugin does what a test says.
type plugin struct {
	name   string
	synced chan struct{}
	closed chan struct{}
	stub   stub.Stub

	mu     sync.Mutex
	events []string
	seen   *api.Container

	synchronize func([]*api.PodSandbox, []*api.Container) []*api.ContainerUpdate
	create      func(*api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error)
	update      func(*api.LinuxResources) ([]*api.ContainerUpdate, error)
	start       func() error
	stop        func() []*api.ContainerUpdate
}

// connect connects p as NN-NAME.
func connect(t *testing.T, socket, index, name string, p *plugin, options ...stub.Option) *plugin {
	t.Helper()
	p.name, p.synced, p.closed = name, make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(p.closed) })
	var err error
	p.stub, err = stub.New(p, append(options, stub.WithSocketPath(socket), stub.WithPluginName(name), stub.WithPluginIdx(index), stub.WithOnClose(once))...)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.stub.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stub.Stop)
	select {
	case <-p.synced:
	case <-time.After(time.Minute):
		t.Fatalf("plugin %s was not synchronized", name)
	}
	return p
}

func (p *plugin) heard(event string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, event)
}

func (p *plugin) Synchronize(_ context.Context, pods []*api.PodSandbox, containers []*api.Container) (updates []*api.ContainerUpdate, _ error) {
	if p.synchronize != nil {
		updates = p.synchronize(pods, containers)
	}
	close(p.synced)
	return updates, nil
}

func (p *plugin) RunPodSandbox(context.Context, *api.PodSandbox) error {
	p.heard("run pod")
	return nil
}

func (p *plugin) CreateContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	p.heard("create")
	p.mu.Lock()
	p.seen = c
	p.mu.Unlock()
	if p.create == nil {
		return nil, nil, nil
	}
	return p.create(c)
}

func (p *plugin) StartContainer(context.Context, *api.PodSandbox, *api.Container) error {
	p.heard("start")
	if p.start == nil {
		return nil
	}
	return p.start()
}

func (p *plugin) UpdateContainer(_ context.Context, _ *api.PodSandbox, _ *api.Container, r *api.LinuxResources) ([]*api.ContainerUpdate, error) {
	p.heard("update")
	if p.update == nil {
		return nil, nil
	}
	return p.update(r)
}

func (p *plugin) StopContainer(context.Context, *api.PodSandbox, *api.Container) ([]*api.ContainerUpdate, error) {
	p.heard("stop")
	if p.stop == nil {
		return nil, nil
	}
	return p.stop(), nil
}

func memory(id string, limit int64) *api.ContainerUpdate {
	u := &api.ContainerUpdate{}
	u.SetContainerId(id)
	u.SetLinuxMemoryLimit(limit)
	return u
}

func TestPluginsChangeAContainer(t *testing.T) {
	socket, h := filepath.Join(t.TempDir(), "nri.sock"), &host{}
	p, _ := serve(t, nri.Config{Socket: socket}, h)
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v; want mode 0600", info, err)
	}
	if change, err := p.Create(t.Context(), somePod(), someContainer("new")); err != nil || change.Spec != nil {
		t.Errorf("without plugins: %+v, %v", change, err)
	}
	var had []string
	first := connect(t, socket, "10", "first", &plugin{
		synchronize: func(pods []*api.PodSandbox, containers []*api.Container) []*api.ContainerUpdate {
			had = append(had, pods[0].GetName(), pods[0].GetLinux().GetNamespaces()[0].GetPath(), pods[0].GetIps()[0])
			for _, c := range containers {
				had = append(had, c.GetId())
			}
			return []*api.ContainerUpdate{memory("old", 1<<20)}
		},
		create: func(*api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
			a := &api.ContainerAdjustment{}
			a.AddEnv("A", "first")
			a.AddRlimit("RLIMIT_NOFILE", 20, 10)
			a.AddDevice(&api.LinuxDevice{Path: "/dev/thing", Type: "c", Major: 1, Minor: 3})
			a.AddCDIDevice(&api.CDIDevice{Name: "v.com/c=a"})
			return a, []*api.ContainerUpdate{memory("other", 2<<20)}, nil
		},
	})
	// The container "new" is not among the runtime's, and first has not heard of it.
	if want := []string{"p", "/run/netns/p", "10.0.0.7", "old", "new"}; !slices.Equal(had, want) {
		t.Errorf("synchronized with %q, want %q", had, want)
	}
	if u := h.until(t, "old"); u.Resources.GetMemoryLimitInBytes() != 1<<20 {
		t.Errorf("update %+v", u)
	}
	second := connect(t, socket, "20", "second", &plugin{})
	change, err := p.Create(t.Context(), somePod(), someContainer("c"))
	if err != nil {
		t.Fatal(err)
	}
	s := change.Spec
	if want := []string{"A=first", "B=2", "CDI=v.com/c=a"}; !slices.Equal(s.Process.Env, want) {
		t.Errorf("environment %q, want %q", s.Process.Env, want)
	}
	if l := s.Process.Rlimits; len(l) != 1 || l[0].Hard != 20 || l[0].Soft != 10 {
		t.Errorf("limits %+v", l)
	}
	if d := s.Linux.Devices; len(d) != 1 || d[0].Path != "/dev/thing" || !s.Linux.Resources.Devices[0].Allow {
		t.Errorf("devices %+v, rules %+v", d, s.Linux.Resources.Devices)
	}
	if change.By != "NRI plugin 10-first" || len(change.Updates) != 1 || change.Updates[0].ContainerID != "other" {
		t.Errorf("change %+v", change)
	}
	if env := second.seen.GetEnv(); !slices.Contains(env, "A=first") {
		t.Errorf("the second plugin saw %q; want the change of the first one", env)
	}
	for _, e := range []localcri.HookEvent{localcri.HookPodRun, localcri.HookCreated, localcri.HookStart, localcri.HookStarted, localcri.HookStop, localcri.HookRemove} {
		c := someContainer("c")
		if _, err := p.Event(t.Context(), e, somePod(), &c); err != nil {
			t.Errorf("%s: %v", e, err)
		}
	}
	if want := []string{"create", "run pod", "start", "stop"}; !slices.Equal(first.events, want) {
		t.Errorf("events %q, want %q", first.events, want)
	}
}

func TestPluginsChangeAnUpdate(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "nri.sock")
	p, _ := serve(t, nri.Config{Socket: socket}, &host{})
	asked := &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1 << 20, CpuShares: 100, OomScoreAdj: 7}
	pl := connect(t, socket, "10", "a", &plugin{update: func(*api.LinuxResources) ([]*api.ContainerUpdate, error) {
		return []*api.ContainerUpdate{memory("c", 4<<20), memory("other", 2<<20)}, nil
	}})
	got, others, err := p.Update(t.Context(), somePod(), someContainer("c"), asked)
	if err != nil || got.GetMemoryLimitInBytes() != 4<<20 || got.GetCpuShares() != 100 || got.GetOomScoreAdj() != 7 || len(others) != 1 || others[0].ContainerID != "other" {
		t.Errorf("%v, %+v, %v", got, others, err)
	}
	pl.update = nil
	if got, others, err = p.Update(t.Context(), somePod(), someContainer("c"), asked); err != nil || got != asked || others != nil {
		t.Errorf("unchanged: %v, %+v, %v", got, others, err)
	}
}

func TestUpdatesThatAPluginWantsByItself(t *testing.T) {
	socket, h := filepath.Join(t.TempDir(), "nri.sock"), &host{}
	serve(t, nri.Config{Socket: socket}, h)
	pl := connect(t, socket, "10", "a", &plugin{})
	if failed, err := pl.stub.UpdateContainers([]*api.ContainerUpdate{memory("c", 1<<20)}); err != nil || len(failed) > 0 {
		t.Errorf("%v, %v", failed, err)
	}
	if u := h.until(t, "c"); u.Resources.GetMemoryLimitInBytes() != 1<<20 {
		t.Errorf("update %+v", u)
	}
	pids := &api.ContainerUpdate{ContainerId: "c", Linux: &api.LinuxContainerUpdate{Resources: &api.LinuxResources{Pids: &api.LinuxPids{Limit: 7}}}}
	if failed, err := pl.stub.UpdateContainers([]*api.ContainerUpdate{pids}); err != nil || len(failed) != 1 {
		t.Errorf("of what is not supported: %v, %v; want it to fail", failed, err)
	}
}

func TestFaultsOfPlugins(t *testing.T) {
	adjust := func(f func(*api.ContainerAdjustment)) func(*api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
		return func(*api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
			a := &api.ContainerAdjustment{}
			f(a)
			return a, nil, nil
		}
	}
	env := adjust(func(a *api.ContainerAdjustment) { a.AddEnv("X", "1") })
	for name, test := range map[string]struct {
		create  func(p *plugin) func(*api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error)
		options []stub.Option
		words   []string // of the error; none means that the container is created
		gone    bool     // the plugin is disconnected
	}{
		"an error": {create: func(*plugin) func(*api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
			return func(*api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
				return nil, nil, errors.New("no more things")
			}
		}, words: []string{"20-bad", "no more things"}},
		"a conflict": {create: func(*plugin) func(*api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
			return env
		}, words: []string{"20-bad", "10-good"}},
		"a hang": {create: hangs, gone: true},
		"a hang of a plugin that must not be left out": {
			create: hangs, options: []stub.Option{stub.WithFailurePolicy(&api.FailurePolicy{FailRequest: true})}, words: []string{"20-bad", "CreateContainer"}, gone: true,
		},
		"a death": {create: func(p *plugin) func(*api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
			return func(*api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
				go p.stub.Stop()
				<-p.closed
				return nil, nil, nil
			}
		}, gone: true},
		"an unknown device": {create: func(*plugin) func(*api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
			return adjust(func(a *api.ContainerAdjustment) { a.AddCDIDevice(&api.CDIDevice{Name: "v.com/c=none"}) })
		}, words: []string{"20-bad", "v.com/c=none"}},
		"a class": {create: func(*plugin) func(*api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
			return adjust(func(a *api.ContainerAdjustment) { a.SetLinuxBlockIOClass("fast") })
		}, words: []string{"20-bad", "linux.resources.blockio_class"}},
		"a field that is left out": {create: func(*plugin) func(*api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
			return adjust(func(a *api.ContainerAdjustment) { a.SetLinuxMemorySwappiness(7) })
		}, words: []string{"20-bad", "linux.resources.memory"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			socket := filepath.Join(t.TempDir(), "nri.sock")
			p, _ := serve(t, nri.Config{Socket: socket}, &host{})
			connect(t, socket, "10", "good", &plugin{create: env})
			bad := &plugin{}
			bad.create = test.create(bad)
			connect(t, socket, "20", "bad", bad, test.options...)
			change, err := p.Create(t.Context(), somePod(), someContainer("c"))
			switch {
			case len(test.words) == 0 && (err != nil || change.By != "NRI plugin 10-good" || !slices.Contains(change.Spec.Process.Env, "X=1")):
				t.Errorf("%+v, %v; want the change of the good plugin", change, err)
			case len(test.words) > 0 && err == nil:
				t.Errorf("no error, want %q", test.words)
			}
			for _, w := range test.words {
				if err != nil && !strings.Contains(err.Error(), w) {
					t.Errorf("%v; want %q in it", err, w)
				}
			}
			if test.gone {
				select {
				case <-bad.closed:
				case <-time.After(time.Minute):
					t.Error("the plugin is still connected")
				}
			}
			// It does not disturb the next request.
			if !test.gone {
				return
			}
			begun := time.Now()
			if _, err := p.Create(t.Context(), somePod(), someContainer("d")); err != nil || time.Since(begun) > time.Minute {
				t.Errorf("afterwards: %v after %v", err, time.Since(begun))
			}
		})
	}
}

// hangs answers when the plugin is disconnected.
func hangs(p *plugin) func(*api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	return func(*api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
		<-p.closed
		return nil, nil, nil
	}
}

// A plugin that connects again, after the runtime was killed, gets what exists, and can change it.
func TestRestart(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "nri.sock")
	_, stop := serve(t, nri.Config{Socket: socket}, &host{})
	connect(t, socket, "10", "a", &plugin{}).stub.Stop()
	stop()
	// A socket that a killed process left.
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	h := &host{}
	serve(t, nri.Config{Socket: socket}, h)
	connect(t, socket, "10", "a", &plugin{synchronize: func(pods []*api.PodSandbox, containers []*api.Container) []*api.ContainerUpdate {
		if len(pods) != 1 || len(containers) != 1 {
			t.Errorf("synchronized with %v and %v", pods, containers)
		}
		return []*api.ContainerUpdate{memory("old", 3<<20)}
	}})
	if u := h.until(t, "old"); u.Resources.GetMemoryLimitInBytes() != 3<<20 {
		t.Errorf("update %+v", u)
	}
}

func TestNothingIsLoggedAfterTheEnd(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	_, stop := serve(t, nri.Config{Socket: filepath.Join(t.TempDir(), "nri.sock"), Log: zap.New(core)}, &host{})
	log.Infof(t.Context(), "before")
	if logs.TakeAll() == nil {
		t.Error("a message of the module was not logged")
	}
	stop()
	logs.TakeAll()
	log.Infof(t.Context(), "a connection was closed")
	if late := logs.TakeAll(); late != nil {
		t.Errorf("logged after the end: %v", late)
	}
}

func TestSocketOfAnother(t *testing.T) {
	dir := t.TempDir()
	taken, file := filepath.Join(dir, "taken.sock"), filepath.Join(dir, "file")
	l, err := net.Listen("unix", taken)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(dir, "open")
	if err := errors.Join(os.Mkdir(open, 0o755), os.Chmod(open, 0o777)); err != nil {
		t.Fatal(err)
	}
	for socket, word := range map[string]string{taken: "another process", file: "want a socket", filepath.Join(open, "nri.sock"): "writable by its owner alone"} {
		p, err := nri.New(nri.Config{Socket: socket})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Run(t.Context(), &host{}); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v; want %q in it", socket, err, word)
		}
		// No container is created without the plugins that could have changed it.
		if _, err := p.Create(t.Context(), somePod(), someContainer("c")); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: Create: %v; want %q in it", socket, err, word)
		}
	}
}

func TestConfig(t *testing.T) {
	for word, cfg := range map[string]nri.Config{
		"at least one":     {},
		"Config.Socket":    {Socket: "nri.sock"},
		"107 bytes":        {Socket: "/" + strings.Repeat("x", 107)},
		"Config.PluginDir": {PluginDir: "plugins"},
	} {
		if _, err := nri.New(cfg); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%+v: %v; want %q in it", cfg, err, word)
		}
	}
}

//go:build linux

package localcri_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/localcri/nri"
)

// plugged is a node with plugins.
func plugged(t *testing.T, cfg nri.Config) *node {
	return newShellNode(t, func(n *node) {
		cfg.Log = n.log
		var err error
		if n.hooks, err = nri.New(cfg); err != nil {
			t.Fatal(err)
		}
	})
}

// adjuster is a plugin.
type adjuster struct {
	synced chan int // containers at each synchronization
	hook   string

	mu     sync.Mutex
	events []string
}

func (a *adjuster) Synchronize(_ context.Context, _ []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	a.synced <- len(containers)
	return nil, nil
}

func (a *adjuster) CreateContainer(context.Context, *api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	c := &api.ContainerAdjustment{}
	c.AddEnv("NRI", "was here")
	c.AddRlimit("RLIMIT_NOFILE", 321, 123)
	c.AddDevice(&api.LinuxDevice{Path: "/dev/thing", Type: "c", Major: 1, Minor: 5})
	c.AddMount(&api.Mount{Destination: "/hook", Type: "bind", Source: filepath.Dir(a.hook), Options: []string{"rbind", "ro"}})
	c.AddHooks(&api.Hooks{CreateRuntime: []*api.Hook{{Path: a.hook}}})
	c.AddAnnotation("example.com/nri", "yes")
	return c, nil, nil
}

func (a *adjuster) PostStartContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	a.note("started " + c.GetName())
	return nil
}

func (a *adjuster) StopContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) ([]*api.ContainerUpdate, error) {
	a.note("stopped " + c.GetName())
	return nil, nil
}

func (a *adjuster) note(event string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events = append(a.events, event)
}

func (a *adjuster) heard(event string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Contains(a.events, event)
}

// What a plugin changes is there in a container, and an update that it wants reaches the cgroup. A
// plugin that connects after a restart of the agent finds the container.
func TestPluginsOnRealContainers(t *testing.T) {
	dir := t.TempDir()
	a := &adjuster{synced: make(chan int, 10), hook: filepath.Join(dir, "hook")}
	seen, socket := filepath.Join(dir, "seen"), filepath.Join(dir, "nri.sock")
	if err := os.WriteFile(a.hook, []byte("#!/bin/sh\ncat >"+seen+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	n := plugged(t, nri.Config{Socket: socket})
	sb := n.pod(t, "p") // waits until the socket is served
	connect := func() stub.Stub {
		t.Helper()
		s, err := stub.New(a, stub.WithSocketPath(socket), stub.WithPluginName("adjuster"), stub.WithPluginIdx("10"), stub.WithOnClose(func() {}))
		if err == nil {
			err = s.Start(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := connect()
	if got := <-a.synced; got != 0 {
		t.Errorf("synchronized with %d containers, want none", got)
	}
	c := n.run(t, sb, script("c", "head -c 3 /dev/thing | tr '\\0' z; echo; echo $NRI; ulimit -n; ulimit -Hn; ls /hook; echo done; sleep 10000"))
	n.untilLog(t, c, "done")
	log := n.readLog(t, c)
	for _, want := range []string{" zzz\n", " was here\n", " 123\n", " 321\n", " hook\n"} {
		if !strings.Contains(log, want) {
			t.Errorf("log has no %q:\n%s", want, log)
		}
	}
	if b, err := os.ReadFile(seen); err != nil || !strings.Contains(string(b), c) {
		t.Errorf("the hook was told %.200q, %v; want the state of %s", b, err, c)
	}
	until(t, "start is told", func() bool { return a.heard("started c") })
	wantMemory := func(limit string) {
		t.Helper()
		if got := memoryLimit(t, n, c); got != limit {
			t.Errorf("limit of memory %s, want %s", got, limit)
		}
	}
	update := &api.ContainerUpdate{}
	update.SetContainerId(c)
	update.SetLinuxMemoryLimit(64 << 20)
	if failed, err := s.UpdateContainers([]*api.ContainerUpdate{update}); err != nil || len(failed) > 0 {
		t.Fatalf("update: %v, %v", failed, err)
	}
	wantMemory("67108864")
	// The agent restarts, and the plugin connects again.
	s.Stop()
	n.stop()
	var err error
	if n.hooks, err = nri.New(nri.Config{Socket: socket, Log: n.log}); err != nil {
		t.Fatal(err)
	}
	n.start()
	n.pod(t, "q")
	s = connect()
	defer s.Stop()
	if got := <-a.synced; got != 1 {
		t.Errorf("synchronized with %d containers after the restart, want 1", got)
	}
	wantMemory("67108864")
	if err := n.rt.StopContainer(t.Context(), c, 0); err != nil {
		t.Fatal(err)
	}
	until(t, "end is told", func() bool { return a.heard("stopped c") })
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// memoryLimit returns the limit of memory that the kernel has for a container.
func memoryLimit(t *testing.T, n *node, id string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(n.dir, "rt/containers", id, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var spec struct{ Linux struct{ CgroupsPath string } }
	if err := json.Unmarshal(b, &spec); err != nil {
		t.Fatal(err)
	}
	b, err = os.ReadFile(filepath.Join("/sys/fs/cgroup/memory", spec.Linux.CgroupsPath, "memory.limit_in_bytes"))
	if errors.Is(err, fs.ErrNotExist) {
		b, err = os.ReadFile(filepath.Join("/sys/fs/cgroup", spec.Linux.CgroupsPath, "memory.max"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// NRI's own sample plugins, which run on containerd and CRI-O, run here too. NRI_PLUGINS is a directory
// with device-injector, ulimit-adjuster and logger of github.com/containerd/nri/plugins: modules
// without releases, which this module cannot require. "make nri" builds them from a checkout.
func TestSamplePlugins(t *testing.T) {
	from := os.Getenv("NRI_PLUGINS")
	if from == "" {
		t.Skip("needs the sample plugins of NRI in the directory $NRI_PLUGINS: make nri ECOSYSTEM=dir")
	}
	dir, conf := t.TempDir(), t.TempDir()
	events := filepath.Join(conf, "events")
	if err := os.WriteFile(filepath.Join(conf, "logger.conf"), []byte("logFile: "+events+"\nevents: [all]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for plugin, name := range map[string]string{"device-injector": "10-device-injector", "ulimit-adjuster": "20-ulimit-adjuster", "logger": "30-logger"} {
		if err := os.Symlink(filepath.Join(from, plugin), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	n := plugged(t, nri.Config{PluginDir: dir, PluginConfigDir: conf})
	sb := n.pod(t, "p", func(c *runtimeapi.PodSandboxConfig) {
		c.Annotations = map[string]string{
			"devices.noderesource.dev/container.c":  "- path: /dev/thing\n  type: c\n  major: 1\n  minor: 5\n",
			"devices.nri.io/container.c":            "- path: /dev/thing\n  type: c\n  major: 1\n  minor: 5\n",
			"ulimits.noderesource.dev/container.c":  "- type: RLIMIT_NOFILE\n  hard: 321\n  soft: 123\n",
			"ulimits.nri.containerd.io/container.c": "- type: RLIMIT_NOFILE\n  hard: 321\n  soft: 123\n",
		}
	})
	c := n.run(t, sb, script("c", "head -c 3 /dev/thing | tr '\\0' z; echo; ulimit -n; ulimit -Hn; echo done"))
	n.untilLog(t, c, "done")
	log := n.readLog(t, c)
	for _, want := range []string{" zzz\n", " 123\n", " 321\n"} {
		if !strings.Contains(log, want) {
			t.Errorf("log has no %q:\n%s", want, log)
		}
	}
	for _, want := range []string{"RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer"} {
		until(t, "the logger has "+want, func() bool {
			b, _ := os.ReadFile(events)
			return strings.Contains(string(b), want)
		})
	}
}

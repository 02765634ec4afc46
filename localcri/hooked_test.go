//go:build linux

package localcri

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// someHooks note what they hear, and do what a test says.
type someHooks struct {
	ran    chan HookHost
	create func(HookContainer) (HookChange, error)
	update func(*runtimeapi.LinuxContainerResources) (*runtimeapi.LinuxContainerResources, []HookUpdate, error)
	event  func(HookEvent) ([]HookUpdate, error)

	mu    sync.Mutex
	heard []string
}

func newHooks() *someHooks { return &someHooks{ran: make(chan HookHost, 10)} }

func (h *someHooks) Run(ctx context.Context, host HookHost) error {
	h.ran <- host
	<-ctx.Done()
	return nil
}

func (h *someHooks) note(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heard = append(h.heard, what)
}

func (h *someHooks) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.heard)
}

func (h *someHooks) Create(_ context.Context, p HookPod, c HookContainer) (HookChange, error) {
	h.note("CreateContainer " + p.Config.GetMetadata().GetName() + "/" + c.Config.GetMetadata().GetName())
	if h.create == nil {
		return HookChange{}, nil
	}
	return h.create(c)
}

func (h *someHooks) Update(_ context.Context, _ HookPod, c HookContainer, r *runtimeapi.LinuxContainerResources) (*runtimeapi.LinuxContainerResources, []HookUpdate, error) {
	h.note("UpdateContainer " + c.Config.GetMetadata().GetName())
	if h.update == nil {
		return r, nil, nil
	}
	return h.update(r)
}

func (h *someHooks) Event(_ context.Context, e HookEvent, p HookPod, c *HookContainer) ([]HookUpdate, error) {
	what := string(e) + " " + p.Config.GetMetadata().GetName()
	if c != nil {
		what += "/" + c.Config.GetMetadata().GetName()
		if c.Spec == nil {
			what += " without configuration"
		}
	}
	h.note(what)
	if h.event == nil {
		return nil, nil
	}
	return h.event(e)
}

// hooked is a bench whose runtime has hooks.
func hooked(t *testing.T, h *someHooks) *bench {
	b := newBench(t)
	b.hooks = h
	b.restart()
	return b
}

func TestHooksHearOfALife(t *testing.T) {
	h := newHooks()
	b := hooked(t, h)
	sb := b.sandbox("p")
	c := b.running(sb, "c")
	resources := &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{CpuShares: 7}}
	if err := b.rt.UpdateContainerResources(t.Context(), c, resources); err != nil {
		t.Fatal(err)
	}
	if _, err := b.rt.UpdatePodSandboxResources(t.Context(), &runtimeapi.UpdatePodSandboxResourcesRequest{PodSandboxId: sb}); err != nil {
		t.Fatal(err)
	}
	if pods, containers := (<-h.ran).Snapshot(t.Context()); len(pods) != 1 || len(containers) != 1 || containers[0].PID == 0 || *containers[0].Spec.Linux.Resources.CPU.Shares != 7 {
		t.Errorf("snapshot %+v, %+v", pods, containers)
	}
	b.end(c, 3)
	b.untilExited(c)
	if err := b.rt.StopPodSandbox(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
	if err := b.rt.RemovePodSandbox(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"RunPodSandbox p", "CreateContainer p/c", "PostCreateContainer p/c", "StartContainer p/c", "PostStartContainer p/c", "UpdateContainer c", "PostUpdateContainer p/c",
		"UpdatePodSandbox p", "PostUpdatePodSandbox p", "StopContainer p/c", "StopPodSandbox p", "RemoveContainer p/c", "RemovePodSandbox p",
	}
	if got := h.all(); !slices.Equal(got, want) {
		t.Errorf("heard %q,\nwant %q", got, want)
	}
	b.clean()
}

func TestHooksChangeAContainer(t *testing.T) {
	h := newHooks()
	b := hooked(t, h)
	sb := b.sandbox("p")
	other := b.running(sb, "other")
	h.create = func(c HookContainer) (HookChange, error) {
		c.Spec.Process.Env = append(c.Spec.Process.Env, "X=1")
		c.Spec.Process.OOMScoreAdj = new(5)
		c.Spec.Linux.Resources.Memory = &specs.LinuxMemory{Limit: new(int64(1 << 20))}
		c.Spec.Linux.Resources.Pids = &specs.LinuxPids{Limit: new(int64(9))}
		return HookChange{Spec: c.Spec, By: "hook", Updates: []HookUpdate{
			{ContainerID: other, Resources: &runtimeapi.LinuxContainerResources{CpuShares: 9}}, {ContainerID: "none", IgnoreFailure: true},
		}}, nil
	}
	c := b.container(sb, "c")
	configuration := func() (s specs.Spec) {
		raw, err := os.ReadFile(b.rt.containers[c].bundle(configFile))
		if err == nil {
			err = json.Unmarshal(raw, &s)
		}
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := configuration(); !slices.Contains(s.Process.Env, "X=1") || *s.Linux.Resources.Memory.Limit != 1<<20 || *s.Linux.Resources.Pids.Limit != 9 {
		t.Errorf("configuration %+v, %+v", s.Process, s.Linux.Resources)
	}
	if r := b.status(c).GetResources().GetLinux(); r.GetMemoryLimitInBytes() != 1<<20 || r.GetOomScoreAdj() != 5 {
		t.Errorf("resources %v", r)
	}
	if r := b.status(other).GetResources().GetLinux(); r.GetCpuShares() != 9 {
		t.Errorf("resources of the other container %v", r)
	}
	// A later update keeps what hooks changed, and so does the next agent.
	if err := b.rt.UpdateContainerResources(t.Context(), c, &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{CpuShares: 7}}); err != nil {
		t.Fatal(err)
	}
	if s := configuration(); *s.Linux.Resources.CPU.Shares != 7 || *s.Linux.Resources.Memory.Limit != 1<<20 || *s.Linux.Resources.Pids.Limit != 9 {
		t.Errorf("after an update: %+v", s.Linux.Resources)
	}
	b.restart()
	if r := b.status(c).GetResources().GetLinux(); r.GetMemoryLimitInBytes() != 1<<20 || r.GetCpuShares() != 7 {
		t.Errorf("resources after a restart %v", r)
	}
}

func TestHooksRefuse(t *testing.T) {
	h := newHooks()
	b := hooked(t, h)
	no := errors.New("not this one")
	sb := b.sandbox("p")
	try := func(what string, err error, words ...string) {
		t.Helper()
		for _, w := range words {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v; want %q in it", what, err, w)
			}
		}
	}
	create := func() error {
		_, err := b.rt.CreateContainer(t.Context(), sb, containerConfig("c"), nil)
		return err
	}
	h.create = func(HookContainer) (HookChange, error) { return HookChange{}, no }
	try("create", create(), "CreateContainer", "not this one")
	h.create = func(c HookContainer) (HookChange, error) {
		c.Spec.Linux.CgroupsPath = "/"
		return HookChange{Spec: c.Spec, By: "plugin x"}, nil
	}
	err := create()
	wantCode(t, "cgroup", err, codes.FailedPrecondition)
	try("cgroup", err, "plugin x", "linux.cgroups_path", `"/"`)
	h.create = nil
	h.event = func(HookEvent) ([]HookUpdate, error) { return nil, no }
	_, err = b.rt.RunPodSandbox(t.Context(), sandboxConfig("q"), "")
	try("run", err, "RunPodSandbox", "not this one")
	c := b.container(sb, "d") // events after the fact refuse nothing
	try("start", b.rt.StartContainer(t.Context(), c), "StartContainer", "not this one")
	h.event = nil
	if err := b.rt.StartContainer(t.Context(), c); err != nil {
		t.Errorf("second start: %v", err)
	}
	h.update = func(*runtimeapi.LinuxContainerResources) (*runtimeapi.LinuxContainerResources, []HookUpdate, error) {
		return nil, nil, no
	}
	try("update", b.rt.UpdateContainerResources(t.Context(), c, &runtimeapi.ContainerResources{}), "UpdateContainer", "not this one")
	if err := b.rt.RemovePodSandbox(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"StopContainer p/c without configuration", "RemoveContainer p/c without configuration", "StopPodSandbox q", "RemovePodSandbox q"} {
		if !slices.Contains(h.all(), want) {
			t.Errorf("heard %q; want %q among it", h.all(), want)
		}
	}
	b.clean()
}

// Hooks that hang hold up one container, and nothing else.
func TestHooksHang(t *testing.T) {
	h := newHooks()
	b := hooked(t, h)
	sb := b.sandbox("p")
	release, began := make(chan struct{}), make(chan struct{})
	h.create = func(c HookContainer) (HookChange, error) {
		if c.Config.GetMetadata().GetName() == "hangs" {
			close(began)
			<-release
		}
		return HookChange{}, nil
	}
	created := make(chan error, 1)
	go func() {
		_, err := b.rt.CreateContainer(context.WithoutCancel(t.Context()), sb, containerConfig("hangs"), nil)
		created <- err
	}()
	<-began
	b.running(sb, "c")
	b.sandbox("q")
	if _, err := b.rt.ListContainers(t.Context(), nil); err != nil {
		t.Error(err)
	}
	close(release)
	if err := <-created; err != nil {
		t.Error(err)
	}
}

// After a crash, hooks run again and find what exists.
func TestHooksAfterACrash(t *testing.T) {
	h := newHooks()
	b := hooked(t, h)
	c := b.running(b.sandbox("p"), "c")
	<-h.ran // else the runtime could end before its hooks run
	b.restart()
	host := <-h.ran
	if pods, containers := host.Snapshot(t.Context()); len(pods) != 1 || len(containers) != 1 || containers[0].Status.GetId() != c {
		t.Errorf("snapshot %+v, %+v", pods, containers)
	}
	if err := host.Update(t.Context(), HookUpdate{ContainerID: c, Resources: &runtimeapi.LinuxContainerResources{CpuShares: 8}}); err != nil {
		t.Error(err)
	}
	if slices.Contains(h.all(), "UpdateContainer c") {
		t.Error("hooks were asked about their own update")
	}
	b.end(c, 0)
	b.until("the end is told", func() bool { return slices.Contains(h.all(), "StopContainer p/c") })
}

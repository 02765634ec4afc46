package podruntime

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podspec"
)

// explorer drives one pod through a random history and checks, at every start
// of a container, that it was to be started.
type explorer struct {
	*memory
	one     sync.Mutex // starts and stops of one pod run side by side
	t       *testing.T
	rnd     *rand.Rand
	w       *world
	history []string
	ends    map[string][]end // of each container, by sandbox and name
	edited  map[string]bool  // since its last start
	over    bool             // the pod came to its end
}

// end is how one instance ended.
type end struct{ code int32 }

func (e *explorer) note(format string, args ...any) {
	e.history = append(e.history, fmt.Sprintf(format, args...))
}

func (e *explorer) wrong(format string, args ...any) {
	e.t.Fatalf("%s\nafter: %s", fmt.Sprintf(format, args...), strings.Join(e.history, "; "))
}

// StartContainer checks what is promised of starts.
func (e *explorer) StartContainer(ctx context.Context, id string) error {
	e.one.Lock()
	defer e.one.Unlock()
	c := byID(e.look(), id)
	if c == nil {
		e.wrong("a start of %s, which is not there", id)
	}
	if n := e.live()[c.Name]; n > 0 {
		e.wrong("%s is started beside %d others of its name", id, n)
	}
	if e.over {
		e.wrong("%s is started although the pod came to its end", id)
	}
	spec := e.spec(c.Name)
	key := c.SandboxID + "/" + c.Name
	if ends := e.ends[key]; len(ends) > 0 && !e.edited[c.Name] {
		if last := ends[len(ends)-1]; !podmeta.IsSidecar(spec) && !podmeta.RestartsAfter(e.w.pod, spec, last.code) {
			e.wrong("%s is started again after exit code %d, policy %s", id, last.code, podmeta.RestartPolicy(e.w.pod, spec))
		}
	}
	e.initOrder(c)
	err := e.memory.StartContainer(ctx, id)
	if byID(e.look(), id).State == observed.Running {
		e.note("%s runs", id)
		delete(e.edited, c.Name)
	}
	return err
}

// initOrder checks that all that comes before a container is done, or, of
// sidecars, was started.
func (e *explorer) initOrder(c *observed.Container) {
	for i := range e.w.pod.Spec.InitContainers {
		before := &e.w.pod.Spec.InitContainers[i]
		if before.Name == c.Name {
			return
		}
		key := c.SandboxID + "/" + before.Name
		if podmeta.IsSidecar(before) {
			started := len(e.ends[key]) > 0
			for _, o := range e.look().Containers {
				started = started || o.Name == before.Name && o.SandboxID == c.SandboxID && o.State == observed.Running
			}
			if !started {
				e.wrong("%s is started before the sidecar %s", c.ID, before.Name)
			}
			continue
		}
		if !slices.ContainsFunc(e.ends[key], func(x end) bool { return x.code == 0 }) {
			e.wrong("%s is started before the init container %s is done", c.ID, before.Name)
		}
	}
}

func (e *explorer) spec(name string) *v1.Container {
	for _, list := range [][]v1.Container{e.w.pod.Spec.InitContainers, e.w.pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	e.wrong("a container %s that the pod does not have", name)
	return nil
}

// exit ends an instance, as its process does.
func (e *explorer) exit(c *observed.Container, code int32) {
	e.note("%s exits with %d", c.ID, code)
	_ = e.set(c.ID, observed.Exited)
	byID(&e.pod, c.ID).ExitCode = &code
	e.ended(c, code)
}

// RemoveContainer forgets how the instances ended of a container that has none
// any more: it is to begin anew.
func (e *explorer) RemoveContainer(ctx context.Context, id string) error {
	e.one.Lock()
	defer e.one.Unlock()
	c := byID(e.look(), id)
	err := e.memory.RemoveContainer(ctx, id)
	if pod := e.look(); c != nil && !slices.ContainsFunc(pod.Containers, func(o observed.Container) bool {
		return o.Name == c.Name && o.SandboxID == c.SandboxID
	}) {
		delete(e.ends, c.SandboxID+"/"+c.Name)
	}
	return err
}

func (e *explorer) ended(c *observed.Container, code int32) {
	key := c.SandboxID + "/" + c.Name
	e.ends[key] = append(e.ends[key], end{code})
}

// CreateContainer has the runtime show what the container may use.
func (e *explorer) CreateContainer(ctx context.Context, sb string, conf *runtimeapi.ContainerConfig, sc *runtimeapi.PodSandboxConfig) (string, error) {
	id, err := e.memory.CreateContainer(ctx, sb, conf, sc)
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := byID(&e.pod, id); c != nil {
		c.Annotations, c.Resources = conf.GetAnnotations(), &observed.Resources{CPUShares: conf.GetLinux().GetResources().GetCpuShares()}
	}
	return id, err
}

// UpdateContainerResources changes what a running instance may use.
func (e *explorer) UpdateContainerResources(ctx context.Context, id string, r *runtimeapi.ContainerResources) error {
	return e.do(ctx, "UpdateContainerResources", func() error {
		c := byID(&e.pod, id)
		if c == nil || c.State != observed.Running {
			return fmt.Errorf("%s does not run", id)
		}
		c.Resources = &observed.Resources{CPUShares: r.GetLinux().GetCpuShares()}
		return nil
	})
}

func (e *explorer) UpdatePodSandboxResources(context.Context, *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return nil, status.Error(codes.Unimplemented, "not here")
}

func (e *explorer) ContainerStats(context.Context, string) (*runtimeapi.ContainerStats, error) {
	return nil, status.Error(codes.Unimplemented, "not here")
}

// resized checks that what runs has what the spec gives it.
func (e *explorer) resized() {
	pod := e.look()
	for i := range pod.Containers {
		o := &pod.Containers[i]
		if c := e.spec(o.Name); o.State == observed.Running {
			if want := podspec.Resources(podspec.Input{Pod: e.w.pod}, c, c.Resources).GetCpuShares(); o.Resources.CPUShares != want {
				e.wrong("%s has %d CPU shares after a sync without errors, want %d", o.ID, o.Resources.CPUShares, want)
			}
		}
	}
}

// StopContainer ends an instance with the code of a kill.
func (e *explorer) StopContainer(ctx context.Context, id string, grace int64) error {
	e.one.Lock()
	defer e.one.Unlock()
	c := byID(e.look(), id)
	err := e.memory.StopContainer(ctx, id, grace)
	if now := byID(e.look(), id); c != nil && c.State == observed.Running && now != nil && now.State == observed.Exited {
		e.note("%s is killed", id)
		e.mu.Lock()
		byID(&e.pod, id).ExitCode = new(int32(137))
		e.mu.Unlock()
		e.ended(c, 137)
	}
	return err
}

// step does one random thing.
func (e *explorer) step() {
	pod := e.look()
	var running []*observed.Container
	for i := range pod.Containers {
		if pod.Containers[i].State == observed.Running {
			running = append(running, &pod.Containers[i])
		}
	}
	switch n := e.rnd.IntN(20); {
	case n < 8 && len(running) > 0:
		e.exit(running[e.rnd.IntN(len(running))], []int32{0, 0, 1, 137}[e.rnd.IntN(4)])
	case n == 8 && len(pod.Sandboxes) > 0 && pod.Sandboxes[0].State == observed.Running:
		e.note("the sandbox dies")
		e.pod.Sandboxes[0].State = observed.Exited
		for _, c := range running {
			e.exit(c, 137)
		}
	case n == 9:
		c := &e.w.pod.Spec.Containers[e.rnd.IntN(len(e.w.pod.Spec.Containers))]
		c.Image += "+"
		e.note("the image of %s changes", c.Name)
		e.edited[c.Name], e.over = true, false
	case n == 10:
		all := slices.Concat(e.w.pod.Spec.InitContainers, e.w.pod.Spec.Containers)
		c := e.spec(all[e.rnd.IntN(len(all))].Name)
		c.Resources.Requests = v1.ResourceList{v1.ResourceCPU: *resource.NewMilliQuantity(int64(e.rnd.IntN(2000)), resource.DecimalSI)}
		e.note("%s requests %s", c.Name, c.Resources.Requests.Cpu())
	case n == 11:
		call := []string{"UpdateContainerResources", "RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "RemoveContainer", "StopPodSandbox"}[e.rnd.IntN(7)]
		e.fail[call], e.after[call] = errors.New("injected"), e.rnd.IntN(2) == 0
		e.note("%s fails (with effect: %v)", call, e.after[call])
	default:
		time.Sleep(time.Duration(e.rnd.IntN(600)) * time.Second)
	}
}

// settle notes whether the pod came to its end: every regular container ended,
// and its policy starts none again.
func (e *explorer) settle() {
	pod := e.look()
	for i := range e.w.pod.Spec.Containers {
		c := &e.w.pod.Spec.Containers[i]
		o := pod.Newest(c.Name)
		if o == nil || o.State != observed.Exited || e.edited[c.Name] || podmeta.RestartsAfter(e.w.pod, c, o.Code()) {
			return
		}
	}
	if !e.over {
		e.note("the pod is over")
	}
	e.over = true
}

// Whatever happens to a pod: never two live instances of one container, what
// comes first is done first, nothing is started past its policy, a pod that
// came to its end stays there, and what runs has the resources of its spec.
func TestStateSpace(t *testing.T) {
	histories := 200
	if testing.Short() {
		histories = 20
	}
	shapes := [][]string{nil, {"i"}, {"side*"}, {"i", "side*", "j"}, {"side*", "i", "last*"}}
	policies := []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever}
	starts, overs := 0, 0
	for seed := range uint64(histories) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			e := &explorer{
				memory: newMemory(), t: t, rnd: rnd, ends: map[string][]end{}, edited: map[string]bool{},
				w: build(policies[rnd.IntN(len(policies))], shapes[rnd.IntN(len(shapes))], "a", "b"),
			}
			if rnd.IntN(3) == 0 {
				startsAllOver(&e.w.pod.Spec.Containers[0], 1)
			}
			e.note("seed %d, policy %s", seed, e.w.pod.Spec.RestartPolicy)
			logs := t.TempDir()
			begin := func() *Manager {
				m, err := New(Config{Runtime: e, Images: present{}, PodLogsDir: logs, Resizer: e})
				if err != nil {
					t.Fatal(err)
				}
				return m
			}
			m := begin()
			req := request(t, e.w, nil)
			for range 40 {
				req.Observed = e.look()
				if res := m.Sync(t.Context(), req); res.Err() == nil {
					e.resized()
				}
				e.settle()
				clear(e.fail)
				clear(e.after)
				if rnd.IntN(15) == 0 {
					e.note("the agent starts anew")
					m = begin()
				}
				e.step()
			}
			starts += e.calls["StartContainer"]
			if e.over {
				overs++
			}
		})
	}
	if starts < 10*histories/2 || overs < histories/20 {
		t.Errorf("%d starts and %d ends in %d histories: too few to mean much", starts, overs, histories)
	}
	t.Logf("%d starts and %d ends in %d histories", starts, overs, histories)
}

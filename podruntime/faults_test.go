package podruntime

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podspec"
)

// memory is a runtime in memory that keeps an observed.Pod. A call named in
// fail returns that error; with after set it does its work nevertheless, as a
// call does whose answer is lost.
type memory struct {
	mu    sync.Mutex
	n     int
	pod   observed.Pod
	made  map[string]int
	calls map[string]int
	fail  map[string]error
	after map[string]bool
	// dieAt, if not 0, makes every call from that one on fail, as if the
	// agent was gone: with after["*"] the first of them still has effect.
	dieAt int
	// onStart, if not nil, is called before a container starts.
	onStart func(id string)
}

func newMemory() *memory {
	return &memory{made: map[string]int{}, calls: map[string]int{}, fail: map[string]error{}, after: map[string]bool{}}
}

var errDead = errors.New("agent is gone")

// do runs one call.
func (r *memory) do(ctx context.Context, name string, work func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
	r.calls[name]++
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.dieAt != 0 && r.n >= r.dieAt {
		if r.n == r.dieAt && r.after["*"] {
			_ = work()
		}
		return errDead
	}
	if err := r.fail[name]; err != nil {
		if r.after[name] {
			_ = work()
		}
		return err
	}
	return work()
}

func (r *memory) RunPodSandbox(ctx context.Context, c *runtimeapi.PodSandboxConfig, _ string) (id string, err error) {
	err = r.do(ctx, "RunPodSandbox", func() error {
		a := c.Metadata.Attempt
		for _, s := range r.pod.Sandboxes {
			if s.Attempt == a {
				return fmt.Errorf("sandbox name is reserved for %s", s.ID)
			}
		}
		id = fmt.Sprint("s", a)
		r.pod.Sandboxes = append([]observed.Sandbox{{ID: id, Attempt: a, State: observed.Running, HasNetwork: true, IPs: []string{"127.0.0.1"}}}, r.pod.Sandboxes...)
		return nil
	})
	return id, err
}

func (r *memory) PodSandboxStatus(ctx context.Context, _ string, _ bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	err := r.do(ctx, "PodSandboxStatus", func() error { return nil })
	return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "127.0.0.1"}}}, err
}

func (r *memory) StopPodSandbox(ctx context.Context, id string) error {
	return r.do(ctx, "StopPodSandbox", func() error {
		for i := range r.pod.Sandboxes {
			if r.pod.Sandboxes[i].ID == id {
				r.pod.Sandboxes[i].State = observed.Exited
			}
		}
		return nil
	})
}

func (r *memory) RemovePodSandbox(ctx context.Context, id string) error {
	return r.do(ctx, "RemovePodSandbox", func() error {
		var kept []observed.Sandbox
		for _, s := range r.pod.Sandboxes {
			if s.ID != id {
				kept = append(kept, s)
			}
		}
		r.pod.Sandboxes = kept
		return nil
	})
}

func (r *memory) CreateContainer(ctx context.Context, sb string, c *runtimeapi.ContainerConfig, _ *runtimeapi.PodSandboxConfig) (id string, err error) {
	err = r.do(ctx, "CreateContainer", func() error {
		id = fmt.Sprint(c.Metadata.Name, "-", c.Metadata.Attempt, "-", sb)
		for _, o := range r.pod.Containers {
			if o.Name == c.Metadata.Name && o.Attempt == c.Metadata.Attempt && o.SandboxID == sb {
				return fmt.Errorf("container name is reserved for %s", o.ID)
			}
		}
		if r.made[id]++; r.made[id] > 1 {
			id += fmt.Sprint("-again", r.made[id]) // the name is free, the ID is new
		}
		restarts, err := strconv.ParseInt(c.Annotations[cri.AnnotationRestartCount], 10, 32)
		if err != nil {
			return err
		}
		r.pod.Containers = append([]observed.Container{{ID: id, Name: c.Metadata.Name, SandboxID: sb, State: observed.Created,
			Attempt: c.Metadata.Attempt, RestartCount: int32(restarts), CreatedAt: time.Now(),
			Hash: c.Annotations["io.kubernetes.container.hash"]}}, r.pod.Containers...)
		return nil
	})
	return id, err
}

func (r *memory) set(id string, s observed.State) error {
	for i := range r.pod.Containers {
		if o := &r.pod.Containers[i]; o.ID == id {
			o.State = s
			switch s {
			case observed.Running:
				o.StartedAt = time.Now()
			case observed.Exited:
				o.FinishedAt, o.ExitCode = time.Now(), new(int32)
			}
			return nil
		}
	}
	return fmt.Errorf("no container %s", id)
}

func (r *memory) StartContainer(ctx context.Context, id string) error {
	if r.onStart != nil {
		r.onStart(id)
	}
	return r.do(ctx, "StartContainer", func() error { return r.set(id, observed.Running) })
}

func (r *memory) StopContainer(ctx context.Context, id string, _ int64) error {
	return r.do(ctx, "StopContainer", func() error { return r.set(id, observed.Exited) })
}

func (r *memory) RemoveContainer(ctx context.Context, id string) error {
	return r.do(ctx, "RemoveContainer", func() error {
		var kept []observed.Container
		for _, o := range r.pod.Containers {
			if o.ID != id {
				kept = append(kept, o)
			}
		}
		r.pod.Containers = kept
		return nil
	})
}

func (r *memory) ContainerStatus(ctx context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	resp := &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{Id: id}}
	err := r.do(ctx, "ContainerStatus", func() error {
		for _, o := range r.pod.Containers {
			if o.ID == id {
				if o.State == observed.Running {
					resp.Status.State = runtimeapi.ContainerState_CONTAINER_RUNNING
				}
				return nil
			}
		}
		return status.Error(codes.NotFound, "no container "+id)
	})
	return resp, err
}

func (r *memory) ExecSync(ctx context.Context, _ string, _ []string, _ time.Duration) ([]byte, []byte, error) {
	return nil, nil, r.do(ctx, "ExecSync", func() error { return nil })
}

// look is what the runtime shows now.
func (r *memory) look() *observed.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pod
	p.Sandboxes, p.Containers = append([]observed.Sandbox(nil), p.Sandboxes...), append([]observed.Container(nil), p.Containers...)
	return &p
}

// live counts the running instances of each container.
func (r *memory) live() map[string]int {
	n := map[string]int{}
	for _, c := range r.look().Containers {
		if c.State == observed.Running {
			n[c.Name]++
		}
	}
	return n
}

type present struct{ wait time.Duration }

func (i present) Ensure(ctx context.Context, r ImageRequest) (podspec.ImageFacts, error) {
	if i.wait > 0 {
		select {
		case <-time.After(i.wait):
		case <-ctx.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return podspec.ImageFacts{}, err
	}
	_ = r.Sandbox.GetMetadata().GetAttempt() // a pull sends the configuration
	return podspec.ImageFacts{Ref: r.Image}, nil
}

func manager(t testing.TB, r *memory) *Manager {
	t.Helper()
	m, err := New(Config{Runtime: r, Images: present{}, PodLogsDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func request(t testing.TB, w *world, obs *observed.Pod) Request {
	t.Helper()
	links := false
	w.pod.Spec.EnableServiceLinks = &links
	return Request{Spec: podspec.Input{Pod: w.pod, Life: w.life, PodDir: t.TempDir(), Node: podspec.Node{PodLogsDir: t.TempDir(), CgroupV2: true}}, Observed: obs}
}

func mustSync(t testing.TB, m *Manager, req Request) Result {
	t.Helper()
	res := m.Sync(t.Context(), req)
	if err := res.Err(); err != nil {
		t.Fatalf("sync: %v", err)
	}
	return res
}

func TestCallsOfAStart(t *testing.T) {
	r, w := newMemory(), build(v1.RestartPolicyAlways, nil, "a", "b")
	mustSync(t, manager(t, r), request(t, w, r.look()))
	want := map[string]int{"RunPodSandbox": 1, "PodSandboxStatus": 1, "CreateContainer": 2, "StartContainer": 2}
	if fmt.Sprint(r.calls) != fmt.Sprint(want) {
		t.Errorf("calls = %v, want %v", r.calls, want)
	}
}

// The agent dies at the n-th call, before or after the call took effect.
func TestNoContainerTwiceAfterACrash(t *testing.T) {
	for _, effect := range []bool{false, true} {
		for n := 1; n < 20; n++ {
			r, w := newMemory(), build(v1.RestartPolicyAlways, []string{"i", "side*"}, "a", "b")
			r.dieAt, r.after["*"] = n, effect
			_ = manager(t, r).Sync(t.Context(), request(t, w, r.look()))
			r.dieAt = 0
			for range 8 {
				m := manager(t, r)
				m.Sync(t.Context(), request(t, w, r.look()))
				for name, k := range r.live() {
					if k > 1 {
						t.Fatalf("dead at call %d (effect %v): %d of %s run", n, effect, k, name)
					}
				}
				for _, c := range r.look().Containers {
					if c.Name == "i" && c.State == observed.Running {
						_ = r.set(c.ID, observed.Exited)
					}
				}
			}
			if got := r.live(); got["a"] != 1 || got["b"] != 1 || got["side"] != 1 {
				t.Errorf("dead at call %d (effect %v): running in the end: %v", n, effect, got)
			}
		}
	}
}

// A container that could not be killed must not get a second instance.
func TestFailedKillStartsNoSecond(t *testing.T) {
	r, w := newMemory(), build(v1.RestartPolicyAlways, nil, "a", "b")
	m := manager(t, r)
	mustSync(t, m, request(t, w, r.look()))
	w.pod.Spec.Containers[0].Image = "new"
	r.fail["StopContainer"] = errors.New("no answer")
	m.Sync(t.Context(), request(t, w, r.look()))
	if got := r.live()["a"]; got != 1 {
		t.Errorf("%d instances of a run after a failed kill, want 1", got)
	}
}

// An edit of the image is a new attempt: no back-off from the old one.
func TestImageEditResetsBackOff(t *testing.T) {
	r, w := newMemory(), build(v1.RestartPolicyAlways, nil, "a")
	m := manager(t, r)
	mustSync(t, m, request(t, w, r.look()))
	_ = r.set("a-0-s0", observed.Exited)
	mustSync(t, m, request(t, w, r.look())) // the first restart is immediate
	_ = r.set("a-1-s0", observed.Exited)
	if res := m.Sync(t.Context(), request(t, w, r.look())); res.Err() == nil {
		t.Fatal("the second restart did not wait")
	}
	w.pod.Spec.Containers[0].Image = "fixed"
	if res := m.Sync(t.Context(), request(t, w, r.look())); res.Err() != nil {
		t.Errorf("after the image was edited: %v", res.Err())
	}
}

// A request to the pod finds its address in what the runtime shows.
func TestPreStopRequestToThePodsAddress(t *testing.T) {
	asked := make(chan struct{}, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{} }))
	defer srv.Close()
	r, w := newMemory(), build(v1.RestartPolicyAlways, nil, "a")
	grace := int64(5)
	w.pod.Spec.TerminationGracePeriodSeconds = &grace
	w.pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{
		Port: intstr.FromInt32(int32(srv.Listener.Addr().(*net.TCPAddr).Port))}}}
	m := manager(t, r)
	mustSync(t, m, request(t, w, r.look()))
	if err := m.Kill(t.Context(), w.pod, r.look(), nil); err != nil {
		t.Fatal(err)
	}
	select {
	case <-asked:
	default:
		t.Error("the preStop request was not made")
	}
}

// The network of a sandbox that died goes before another one is made.
func TestDeadSandboxIsStoppedBeforeTheNext(t *testing.T) {
	r, w := newMemory(), build(v1.RestartPolicyAlways, nil, "a")
	m := manager(t, r)
	mustSync(t, m, request(t, w, r.look()))
	r.pod.Sandboxes[0].State = observed.Exited
	_ = r.set("a-0-s0", observed.Exited)
	mustSync(t, m, request(t, w, r.look()))
	if r.calls["StopPodSandbox"] == 0 && r.calls["RemovePodSandbox"] == 0 {
		t.Errorf("the dead sandbox was neither stopped nor removed; calls %v", r.calls)
	}
}

// A regular container that fails is tried once in a sync, also beside a
// sidecar that is restarted.
func TestOneTryPerSync(t *testing.T) {
	r, w := newMemory(), build(v1.RestartPolicyAlways, []string{"side*"}, "a", "b")
	m := manager(t, r)
	mustSync(t, m, request(t, w, r.look()))
	_ = r.set("side-0-s0", observed.Exited)
	_ = r.set("a-0-s0", observed.Exited)
	fr := &failing{memory: r, name: "a"}
	m.rt = fr
	m.Sync(t.Context(), request(t, w, r.look()))
	if fr.tries != 1 {
		t.Errorf("container a was tried %d times in one sync, want 1", fr.tries)
	}
}

type failing struct {
	*memory
	name  string
	tries int
}

func (f *failing) CreateContainer(ctx context.Context, sb string, c *runtimeapi.ContainerConfig, sc *runtimeapi.PodSandboxConfig) (string, error) {
	if c.Metadata.Name == f.name {
		f.tries++
		return "", errors.New("no space")
	}
	return f.memory.CreateContainer(ctx, sb, c, sc)
}

// Under -race: images are asked for while the sandbox's name is found taken.
func TestPrefetchBesideATakenName(t *testing.T) {
	for range 30 {
		r, w := newMemory(), build(v1.RestartPolicyAlways, nil, "a", "b")
		r.fail["RunPodSandbox"], r.after["RunPodSandbox"] = errors.New("name is reserved for x"), true
		m := manager(t, r)
		m.Sync(t.Context(), request(t, w, &observed.Pod{}))
	}
}

// The agent dies and the sync of a pod is cancelled while an image is pulled.
func TestCancelInterruptsAPull(t *testing.T) {
	r, w := newMemory(), build(v1.RestartPolicyAlways, nil, "a")
	m := manager(t, r)
	m.cfg.Images = present{wait: time.Hour}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	done := make(chan Result, 1)
	go func() { done <- m.Sync(ctx, request(t, w, r.look())) }()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		t.Fatal("a cancelled sync goes on")
	}
	m.cfg.Images = present{}
	mustSync(t, m, request(t, w, r.look()))
	if n := r.calls["RunPodSandbox"]; n != 1 {
		t.Errorf("%d sandboxes made, want the first adopted", n)
	}
}

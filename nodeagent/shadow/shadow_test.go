package shadow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
	"github.com/nodewright/nodewright/nodeagent/shadow"
	"github.com/nodewright/nodewright/record"
)

// other is an agent that does what a test tells it, on a runtime in memory.
type other struct {
	t       *testing.T
	rt      *critest.Runtime
	mu      sync.Mutex // guards pod
	pod     *v1.Pod
	sandbox string
	count   int
	entries []record.Entry
}

// watch runs do beside a shadow, in a bubble, and returns the recorded decisions.
func watch(t *testing.T, policy v1.RestartPolicy, do func(*other)) []record.Step {
	t.Helper()
	var entries []record.Entry
	synctest.Test(t, func(t *testing.T) {
		o := &other{t: t, rt: critest.New(), pod: &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-web"},
			Spec:       v1.PodSpec{RestartPolicy: policy, Containers: []v1.Container{{Name: "c", Image: "localhost/app:1"}}},
			Status:     v1.PodStatus{Phase: v1.PodRunning},
		}}
		o.rt.AddImage("localhost/app:1")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- shadow.Run(ctx, shadow.Config{
				Runtime: o.rt,
				Pods: func(context.Context) ([]*v1.Pod, error) {
					o.mu.Lock()
					defer o.mu.Unlock()
					return []*v1.Pod{o.pod.DeepCopy()}, nil
				},
				Record: func(e record.Entry) { e.At = time.Now(); o.entries = append(o.entries, e) },
			})
		}()
		synctest.Wait() // the first look
		do(o)
		o.rest(2 * time.Second)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		entries = o.entries
	})
	return record.Replay(entries)
}

func (o *other) rest(d time.Duration) { time.Sleep(d); synctest.Wait() }

// must ends the test if a call of the runtime failed.
func must[T any](t *testing.T, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (o *other) makeSandbox() {
	id, err := o.rt.RunPodSandbox(o.t.Context(), o.boxConfig(), "")
	o.sandbox = must(o.t, id, err)
}

func (o *other) boxConfig() *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "shop", Uid: "uid-web"},
		Labels:   map[string]string{"io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "shop", "io.kubernetes.pod.uid": "uid-web"},
		Linux:    &runtimeapi.LinuxPodSandboxConfig{},
	}
}

// start starts the next instance of the container, which runs forever.
func (o *other) start() (id string) {
	id, err := o.rt.CreateContainer(o.t.Context(), o.sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "c", Attempt: uint32(o.count)},
		Image:    &runtimeapi.ImageSpec{Image: "localhost/app:1"}, Command: []string{"sleep", "forever"},
		Labels:      map[string]string{"io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "shop", "io.kubernetes.pod.uid": "uid-web", "io.kubernetes.container.name": "c"},
		Annotations: map[string]string{"io.kubernetes.container.restartCount": fmt.Sprint(o.count)},
		Linux:       &runtimeapi.LinuxContainerConfig{},
	}, o.boxConfig())
	must(o.t, id, err)
	must(o.t, 0, o.rt.StartContainer(o.t.Context(), id))
	o.count++
	started := true
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", ContainerID: "containerd://" + id, Started: &started}}
	return id
}

// told returns the decisions and what the other agent did otherwise, a line each, without those that
// keep everything as it is.
func told(steps []record.Step) (out []string) {
	for _, s := range steps {
		if r := s.Decision.Result.String(); len(s.Other) > 0 || r != "c: keep" {
			out = append(out, strings.Join(append([]string{r}, s.Other...), " | "))
		}
	}
	return out
}

// begin is the first decision.
const begin = "make a sandbox (no pod sandbox exists); c: start"

func TestShadow(t *testing.T) {
	for name, tc := range map[string]struct {
		policy v1.RestartPolicy
		do     func(*other)
		want   []string
	}{
		"a crash loop as the kubelet's": {v1.RestartPolicyAlways, func(o *other) {
			o.makeSandbox()
			id := o.start()
			o.rest(3 * time.Second)
			for _, pause := range []time.Duration{time.Second, 11 * time.Second, 21 * time.Second} {
				o.rt.Exit(id, 3)
				o.rest(pause)
				id = o.start()
				o.rest(3 * time.Second)
			}
		}, []string{begin, "c: start", "c: wait (CrashLoopBackOff) until 2000-01-01T00:00:17Z", "c: start", "c: wait (CrashLoopBackOff) until 2000-01-01T00:00:41Z", "c: start"}},
		"a restart before its time": {v1.RestartPolicyAlways, func(o *other) {
			o.makeSandbox()
			for range 3 {
				id := o.start()
				o.rest(2 * time.Second)
				o.rt.Exit(id, 1)
				o.rest(1500 * time.Millisecond)
			}
		}, []string{
			begin,
			"c: start",
			"c: wait (CrashLoopBackOff) until 2000-01-01T00:00:15Z | started c 7.5s before the end of the wait",
			"c: wait (CrashLoopBackOff) until 2000-01-01T00:00:29Z",
		}},
		"a restart that the policy forbids": {v1.RestartPolicyNever, func(o *other) {
			o.makeSandbox()
			id := o.start()
			o.rest(2 * time.Second)
			o.rt.Exit(id, 0)
			o.rest(2 * time.Second)
			o.start()
		}, []string{begin, "the pod is over; c: never | started c"}},
		"nothing is started": {v1.RestartPolicyAlways, func(o *other) {
			o.makeSandbox()
			id := o.start()
			o.rest(2 * time.Second)
			o.rt.Exit(id, 1)
			o.rest(time.Minute)
			o.mu.Lock()
			defer o.mu.Unlock()
			o.pod.Generation = 2
		}, []string{begin, "c: start | did not start c within 1m0s", "c: start"}},
	} {
		t.Run(name, func(t *testing.T) {
			steps := watch(t, tc.policy, tc.do)
			if got := told(steps); !slices.Equal(got, tc.want) {
				t.Errorf("decisions\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
			for _, s := range steps {
				if len(s.Differences) > 0 || !s.Decision.Shadow {
					t.Errorf("%s: %q", s.Decision.Result.String(), s.Differences)
				}
			}
		})
	}
}

func TestKubeletPods(t *testing.T) {
	answer := func(w http.ResponseWriter, _ *http.Request) {}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(w, r) }))
	defer srv.Close()
	pods := shadow.KubeletPods(srv.Client(), srv.URL+"/pods")
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		want   string // of the error; "" for a pod named web
	}{
		"a pod": {func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(v1.PodList{Items: []v1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "web"}}}})
		}, ""},
		"no permission": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, "403 Forbidden"},
		"no JSON":       {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }, "invalid character"},
		"no end": {func(w http.ResponseWriter, _ *http.Request) {
			for range 65 {
				_, _ = w.Write(make([]byte, 1<<20))
			}
		}, "more than 67108864 bytes"},
	} {
		answer = tc.answer
		got, err := pods(t.Context())
		if tc.want == "" && (err != nil || len(got) != 1 || got[0].Name != "web") || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, error %v, want %q", name, got, err, tc.want)
		}
	}
}

// An init container that ends, and the container after it that starts, may be seen at once.
func TestInitContainerBetweenLooks(t *testing.T) {
	input := func(state string, more ...record.Observed) record.Input {
		return record.Input{
			Policy: "Always", Init: []record.Spec{{Name: "i"}}, Regular: []record.Spec{{Name: "c"}}, Sandboxes: []record.Sandbox{{ID: "s", State: "running"}},
			Runs: append([]record.Observed{{ID: "i1", Name: "i", Sandbox: "s", State: state}}, more...),
		}
	}
	for name, tc := range map[string]struct {
		next record.Input
		want []string
	}{
		"it has ended": {input("exited", record.Observed{ID: "c1", Name: "c", Sandbox: "s", State: "running"}), nil},
		"it runs":      {input("running", record.Observed{ID: "c1", Name: "c", Sandbox: "s", State: "running"}), []string{"started c"}},
	} {
		var entries []record.Entry
		for i, in := range []record.Input{input("running"), tc.next} {
			d := &record.Decision{Input: in, Shadow: true}
			d.Result = d.Again()
			entries = append(entries, record.Entry{At: time.Unix(int64(i), 0), Pod: record.Pod{UID: "uid-web"}, Fact: d})
		}
		if got := record.Replay(entries)[0].Other; !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// A look that fails is repeated, and the record goes on.
func TestRuntimeAway(t *testing.T) {
	steps := watch(t, v1.RestartPolicyAlways, func(o *other) {
		o.makeSandbox()
		id := o.start()
		o.rest(2 * time.Second)
		o.rt.Fail("ListContainers", errors.New("connection refused"))
		o.rest(5 * time.Second)
		o.rt.Fail("ListContainers", nil)
		o.rt.Exit(id, 1)
		o.rest(1500 * time.Millisecond)
	})
	if got := told(steps); !slices.Equal(got, []string{begin, "c: start"}) {
		t.Errorf("decisions %q", got)
	}
}

func TestAPIPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := kubeapitest.New()
		pod := func(name, node string) *v1.Pod {
			return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}, Spec: v1.PodSpec{NodeName: node}}
		}
		srv.Create(pod("web", "edge-1"))
		srv.Create(pod("elsewhere", "edge-2"))
		client, err := kubeapi.New(kubeapi.Config{REST: srv.Config()})
		pods, err2 := shadow.NewAPIPods(client, "edge-1", nil)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		if _, err := pods.Pods(t.Context()); err == nil {
			t.Error("no error before the server has answered")
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- pods.Run(ctx) }()
		synctest.Wait()
		srv.Create(pod("app", "edge-1"))
		srv.Remove(kubeapi.Pods, "shop", "web")
		srv.Create(pod("db", "edge-1"))
		synctest.Wait()
		var names []string
		all, err := pods.Pods(t.Context())
		for _, p := range all {
			names = append(names, p.Name)
		}
		if err != nil || !slices.Equal(names, []string{"app", "db"}) {
			t.Errorf("pods %q, error %v", names, err)
		}
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

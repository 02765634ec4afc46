package podruntime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podspec"
)

// amounts reads "cpu=1 memory=1Gi" into a list.
func amounts(s string) v1.ResourceList {
	out := v1.ResourceList{}
	for part := range strings.FieldsSeq(s) {
		name, q, _ := strings.Cut(part, "=")
		out[v1.ResourceName(name)] = resource.MustParse(q)
	}
	return out
}

// asks reads "requests | limits".
func asks(s string) v1.ResourceRequirements {
	requests, limits, _ := strings.Cut(s, "|")
	return v1.ResourceRequirements{Requests: amounts(requests), Limits: amounts(limits)}
}

// restartFor makes changes of a resource restart the container.
func restartFor(c *v1.Container, names ...v1.ResourceName) {
	for _, n := range names {
		c.ResizePolicy = append(c.ResizePolicy, v1.ContainerResizePolicy{ResourceName: n, RestartPolicy: v1.RestartContainer})
	}
}

// written is the annotation of a container made with r.
func written(r v1.ResourceRequirements) map[string]string {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	return map[string]string{cri.AnnotationResources: string(b)}
}

// of describes updates, for comparisons.
func of(updates []Update) string {
	var out []string
	for _, u := range updates {
		l := u.To
		if u.Resource == v1.ResourceCPU {
			out = append(out, fmt.Sprintf("%s cpu %d/%d", u.Name, l.CpuQuota, l.CpuShares))
		} else {
			out = append(out, fmt.Sprintf("%s memory %d", u.Name, l.MemoryLimitInBytes>>20))
		}
	}
	return strings.Join(out, ", ")
}

func TestPlanOfResize(t *testing.T) {
	const before = "cpu=1 memory=64Mi|cpu=2 memory=128Mi"
	shown := &observed.Resources{CPUPeriod: 100000, CPUQuota: 200000, CPUShares: 1024, MemoryLimit: 128 << 20}
	for _, c := range []struct {
		name, made, asks string
		shown            *observed.Resources
		restart          []v1.ResourceName
		want             string // updates, or "restart"
	}{
		{name: "as it was", made: before, asks: before, shown: shown},
		{name: "more of all", made: before, asks: "cpu=2 memory=128Mi|cpu=4 memory=256Mi", shown: shown, want: "c memory 256, c cpu 400000/2048"},
		{name: "more memory", made: before, asks: "cpu=1 memory=64Mi|cpu=2 memory=256Mi", shown: shown, want: "c memory 256"},
		{name: "less memory", made: before, asks: "cpu=1 memory=64Mi|cpu=2 memory=64Mi", shown: shown, want: "c memory 64"},
		{name: "a higher request of memory changes no cgroup", made: before, asks: "cpu=1 memory=128Mi|cpu=2 memory=128Mi", shown: shown},
		{name: "less cpu", made: before, asks: "cpu=500m memory=64Mi|cpu=1 memory=128Mi", shown: shown, want: "c cpu 100000/512"},
		{name: "a request of cpu alone", made: before, asks: "cpu=1500m memory=64Mi|cpu=2 memory=128Mi", shown: shown, want: "c cpu 200000/1536"},
		{name: "written otherwise", made: before, asks: "cpu=1000m memory=65536Ki|cpu=2000m memory=131072Ki", shown: shown},
		{name: "done in an earlier life", made: "cpu=500m memory=64Mi|cpu=1 memory=64Mi", asks: before, shown: shown},
		{name: "first limits", made: "cpu=1", asks: "cpu=1|cpu=1 memory=64Mi", shown: &observed.Resources{CPUPeriod: 100000, CPUShares: 1024},
			want: "c memory 64, c cpu 100000/1024"},
		{name: "limits taken away stay", made: before, asks: "cpu=1 memory=64Mi", shown: shown},
		{name: "a silent runtime", made: before, asks: "cpu=1 memory=64Mi|cpu=2 memory=256Mi", want: "c memory 256"},
		{name: "a silent runtime, as it was", made: before, asks: before},
		{name: "made by another", made: "-", asks: "cpu=1 memory=64Mi|cpu=2 memory=256Mi", shown: shown, want: "c memory 256"},
		{name: "made by another, silent", made: "-", asks: "cpu=1 memory=64Mi|cpu=2 memory=256Mi"},
		{name: "restart for memory", made: before, asks: "cpu=1 memory=64Mi|cpu=2 memory=256Mi", shown: shown, restart: []v1.ResourceName{"memory"}, want: "restart"},
		{name: "restart for a request of memory", made: before, asks: "cpu=1 memory=65Mi|cpu=2 memory=128Mi", shown: shown, restart: []v1.ResourceName{"memory"}, want: "restart"},
		{name: "restart for memory, cpu changes", made: before, asks: "cpu=2 memory=64Mi|cpu=2 memory=128Mi", shown: shown, restart: []v1.ResourceName{"memory"}, want: "c cpu 200000/2048"},
		{name: "restart for cpu, both change", made: before, asks: "cpu=2 memory=64Mi|cpu=2 memory=256Mi", shown: shown, restart: []v1.ResourceName{"cpu"}, want: "restart"},
		{name: "restart, nothing changes", made: before, asks: before, shown: shown, restart: []v1.ResourceName{"cpu", "memory"}},
		{name: "restart, a request named that equals the limit", made: "|cpu=1 memory=64Mi", asks: "cpu=1 memory=64Mi|cpu=1 memory=64Mi",
			shown:   &observed.Resources{CPUPeriod: 100000, CPUQuota: 100000, CPUShares: 1024, MemoryLimit: 64 << 20},
			restart: []v1.ResourceName{"cpu", "memory"}},
		{name: "restart, made by another", made: "-", asks: "cpu=1 memory=64Mi|cpu=2 memory=256Mi", shown: shown, restart: []v1.ResourceName{"memory"}, want: "restart"},
	} {
		for _, where := range []string{"regular", "sidecar"} {
			t.Run(where+": "+c.name, func(t *testing.T) {
				w := build(v1.RestartPolicyAlways, nil, "c").sandbox(observed.Running, "10.0.0.1").all(observed.Running, 0, "c")
				if where == "sidecar" {
					w = build(v1.RestartPolicyAlways, []string{"c*"}, "main").sandbox(observed.Running, "10.0.0.1").all(observed.Running, 0, "c", "main")
				}
				spec, _, _, _ := podspec.Find(w.pod, "c")
				spec.Resources = asks(c.asks)
				restartFor(spec, c.restart...)
				o := w.obs.Newest("c")
				o.Resources = c.shown
				if c.made != "-" {
					o.Annotations = written(asks(c.made))
				}
				m := &Manager{cfg: Config{Resizer: &resizer{}}, runs: newRuns()}
				req := Request{Spec: podspec.Input{Pod: w.pod}, Observed: w.obs}
				a := Plan(m.planInput(req, w.obs))
				got := of(a.Update)
				if slices.ContainsFunc(a.Kill, func(k Kill) bool { return k.ID == o.ID && k.Why == podlife.Resized }) && len(a.Regular)+len(a.Init) == 1 {
					got += "restart"
				}
				if got != c.want {
					t.Errorf("updates %q, want %q", got, c.want)
				}
				if m.NeedsResize(req) != (c.want != "") {
					t.Errorf("NeedsResize = %v", c.want == "")
				}
				if a := Plan(PlanInput{Pod: w.pod, Observed: w.obs}); !a.Empty() {
					t.Errorf("without a resizer there is %+v", a)
				}
			})
		}
	}
}

// Only what runs and stays is resized.
func TestNoResizeBesideOtherChanges(t *testing.T) {
	for name, change := range map[string]func(*world){
		"it is made anew":     func(w *world) { w.edit("c1") },
		"it fails its probe":  func(w *world) { w.probes("c1", ProbeFailure, ProbeNone) },
		"it has ended":        func(w *world) { w.all(observed.Exited, 1, "c1") },
		"the sandbox is gone": func(w *world) { w.sandbox(observed.Exited) },
		"it was removed":      func(w *world) { w.drop("c1") },
	} {
		w := regulars(v1.RestartPolicyAlways)
		change(w)
		w.pod.Spec.Containers[0].Resources = asks("cpu=1")
		if o := w.obs.Newest("c1"); o != nil {
			o.Annotations = written(asks(""))
		}
		m := &Manager{cfg: Config{Resizer: &resizer{}}, runs: newRuns()}
		if a := Plan(m.planInput(Request{Spec: podspec.Input{Pod: w.pod}, Liveness: func(id string) ProbeResult { return w.live[id] }}, w.obs)); len(a.Update) > 0 {
			t.Errorf("%s: %s", name, of(a.Update))
		}
	}
}

// resizer writes down what it is asked, and fails where told to.
type resizer struct {
	calls []string
	fail  map[string]error
	used  map[string]uint64 // bytes, by container ID; others are not known
}

func (r *resizer) call(format string, args ...any) error {
	s := fmt.Sprintf(format, args...)
	r.calls = append(r.calls, s)
	for prefix, err := range r.fail {
		if strings.HasPrefix(s, prefix) {
			return err
		}
	}
	return nil
}

func (r *resizer) UpdateContainerResources(_ context.Context, id string, c *runtimeapi.ContainerResources) error {
	if l := c.GetLinux(); l.GetCpuPeriod() > 0 {
		return r.call("%s cpu %d/%d", id, l.GetCpuQuota(), l.GetCpuShares())
	}
	return r.call("%s memory %d", id, c.GetLinux().GetMemoryLimitInBytes()>>20)
}

func (r *resizer) UpdatePodSandboxResources(_ context.Context, q *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	l := q.GetResources()
	return nil, r.call("sandbox %d/%d %d", l.GetCpuQuota(), l.GetCpuShares(), l.GetMemoryLimitInBytes()>>20)
}

func (r *resizer) ContainerStats(_ context.Context, id string) (*runtimeapi.ContainerStats, error) {
	n, ok := r.used[id]
	if !ok {
		return nil, status.Error(codes.Unavailable, "busy")
	}
	return &runtimeapi.ContainerStats{Memory: &runtimeapi.MemoryUsage{WorkingSetBytes: &runtimeapi.UInt64Value{Value: n}}}, nil
}

func (r *resizer) Raise(_ context.Context, _ *v1.Pod, n v1.ResourceName) error {
	return r.call("raise %s", n)
}

func (r *resizer) Lower(_ context.Context, _ *v1.Pod, n v1.ResourceName) error {
	return r.call("lower %s", n)
}

func TestOrderOfResize(t *testing.T) {
	const small, large = "cpu=1 memory=64Mi|cpu=1 memory=64Mi", "cpu=2 memory=128Mi|cpu=2 memory=128Mi"
	enough := map[string]uint64{"c1-id": 1 << 20, "c2-id": 1 << 20, "c3-id": 1 << 20}
	for _, c := range []struct {
		name     string
		from, to [2]string // of c1 and c2
		fail     map[string]error
		used     map[string]uint64
		want     string
		err      string
	}{
		{name: "both grow", from: [2]string{small, small}, to: [2]string{large, large},
			want: "sandbox 400000/4096 256; raise memory; c1-id memory 128; c2-id memory 128; lower memory; " +
				"sandbox 400000/4096 256; raise cpu; c1-id cpu 200000/2048; c2-id cpu 200000/2048; lower cpu"},
		{name: "both shrink", from: [2]string{large, large}, to: [2]string{small, small}, used: enough,
			want: "raise memory; c1-id memory 64; c2-id memory 64; sandbox 200000/2048 128; lower memory; " +
				"raise cpu; c1-id cpu 100000/1024; c2-id cpu 100000/1024; sandbox 200000/2048 128; lower cpu"},
		{name: "what shrinks goes first", from: [2]string{small, large}, to: [2]string{large, small}, used: enough,
			want: "raise memory; c2-id memory 64; c1-id memory 128; sandbox 300000/3072 192; lower memory; " +
				"raise cpu; c2-id cpu 100000/1024; c1-id cpu 200000/2048; sandbox 300000/3072 192; lower cpu"},
		{name: "more memory than that is in use", from: [2]string{large, small}, to: [2]string{small, small},
			used: map[string]uint64{"c1-id": 65 << 20}, err: "below current usage"},
		{name: "nobody knows what is in use", from: [2]string{large, small}, to: [2]string{small, small}, err: "memory usage is unknown"},
		{name: "what refuses one holds all", from: [2]string{small, large}, to: [2]string{large, small}, err: "memory usage is unknown"},
		{name: "a runtime without sandbox updates", from: [2]string{small, small}, to: [2]string{large, small},
			fail: map[string]error{"sandbox": status.Error(codes.Unimplemented, "no")},
			want: "sandbox 300000/3072 192; raise memory; c1-id memory 128; lower memory; " +
				"sandbox 300000/3072 192; raise cpu; c1-id cpu 200000/2048; lower cpu"},
		{name: "the sandbox refuses", from: [2]string{small, small}, to: [2]string{large, small},
			fail: map[string]error{"sandbox": errors.New("no")}, want: "sandbox 300000/3072 192", err: "no"},
		{name: "the pod's cgroup refuses to grow", from: [2]string{small, small}, to: [2]string{large, small},
			fail: map[string]error{"raise memory": errors.New("no")},
			want: "sandbox 300000/3072 192; raise memory; sandbox 300000/3072 128", err: "no"},
		{name: "the pod's cgroup refuses to shrink", from: [2]string{large, small}, to: [2]string{small, small}, used: enough,
			fail: map[string]error{"lower memory": errors.New("no")},
			want: "raise memory; c1-id memory 64; sandbox 200000/2048 128; lower memory; sandbox 200000/2048 192", err: "no"},
		{name: "a container refuses", from: [2]string{small, small}, to: [2]string{large, large},
			fail: map[string]error{"c1-id memory": errors.New("no")},
			want: "sandbox 400000/4096 256; raise memory; c1-id memory 128", err: "no"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, r, req := resizing(t, c.from, c.to)
			r.fail, r.used = c.fail, c.used
			res := m.Sync(t.Context(), req)
			if got := strings.Join(r.calls, "; "); got != c.want {
				t.Errorf("calls\n%s\nwant\n%s", got, c.want)
			}
			if err := res.Err(); (err == nil) != (c.err == "") || err != nil && (!strings.Contains(err.Error(), c.err) || reasonOf(err) != ReasonResize) {
				t.Errorf("error %v, want one with %q", err, c.err)
			}
			if res.Changed() != (c.want != "") {
				t.Errorf("Changed = %v", res.Changed())
			}
			// What was done is not done again; what was not, is.
			r.calls, r.fail, r.used = nil, nil, enough
			mustSync(t, m, req)
			if (len(r.calls) > 0) != (c.err != "") {
				t.Errorf("the next sync calls %v", r.calls)
			}
			r.calls = nil
			mustSync(t, m, req)
			if len(r.calls) > 0 || m.NeedsResize(req) {
				t.Errorf("the last sync calls %v", r.calls)
			}
		})
	}
}

// The cgroup of a pod with resources of its own follows them though no container changes.
func TestResizeOfThePodAlone(t *testing.T) {
	const each = "cpu=1 memory=64Mi|cpu=1 memory=64Mi"
	m, r, req := resizing(t, [2]string{each, each}, [2]string{each, each})
	ask := func(s string) {
		resources := asks(s)
		req.Spec.Pod.Spec.Resources = &resources
		r.calls = nil
	}
	sync := func(want string) {
		t.Helper()
		res := m.Sync(t.Context(), req)
		if got := strings.Join(r.calls, "; "); got != want {
			t.Errorf("calls\n%s\nwant\n%s", got, want)
		}
		if err := res.Err(); (err != nil) != (r.fail != nil) {
			t.Errorf("error %v", err)
		}
	}

	ask("cpu=2 memory=128Mi|cpu=2 memory=128Mi")
	if m.NeedsResize(req) {
		t.Error("a pod of which nothing is known is taken for one to resize")
	}
	sync("raise memory; lower memory; raise cpu; lower cpu")
	ask("cpu=3 memory=128Mi|cpu=3 memory=128Mi")
	if !m.NeedsResize(req) {
		t.Error("more CPU for the pod is no resize")
	}
	r.fail = map[string]error{"lower cpu": errors.New("no")}
	sync("raise cpu; sandbox 300000/3072 128; lower cpu; sandbox 300000/3072 128")
	r.fail, r.calls = nil, nil
	sync("raise cpu; sandbox 300000/3072 128; lower cpu")
	r.calls = nil
	sync("")
	if m.NeedsResize(req) {
		t.Error("there is more to resize")
	}
}

// The cgroup of a pod is resized before a container starts in it that is made anew with
// more: the kernel refuses a child more CPU than its parent has (cgroup v1).
func TestResizeByRestart(t *testing.T) {
	const small, large = "cpu=1 memory=64Mi|cpu=1 memory=64Mi", "cpu=2 memory=64Mi|cpu=2 memory=64Mi"
	m, r, req := resizing(t, [2]string{small, small}, [2]string{large, small})
	rt := m.rt.(*memory)
	again := func(want string) {
		t.Helper()
		r.calls = nil
		started := ""
		rt.onStart = func(string) { started += "after " + strings.Join(r.calls, "; ") }
		mustSync(t, m, req)
		if started != want {
			t.Errorf("started %s\nwant %s", started, want)
		}
		req.Observed = rt.look()
	}
	c := &req.Spec.Pod.Spec.Containers[0]
	c.ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceCPU, RestartPolicy: v1.RestartContainer}}
	again("after raise memory; lower memory; raise cpu; lower cpu") // nothing is known of it
	c.Resources = asks("cpu=3 memory=64Mi|cpu=3 memory=64Mi")
	again("after raise cpu; sandbox 400000/4096 128; lower cpu")
}

// A container whose limit is its pod's is made anew for another one if its policy asks for
// that, once.
func TestPooledLimitsRestart(t *testing.T) {
	const none = "cpu=1 memory=64Mi|"
	m, r, req := resizing(t, [2]string{none, none}, [2]string{none, none})
	rt := m.rt.(*memory)
	for i := range rt.pod.Containers {
		rt.pod.Containers[i].Resources = &observed.Resources{CPUPeriod: 100000, CPUQuota: 200000, CPUShares: 1024, MemoryLimit: 256 << 20}
	}
	limited := func(s string) {
		resources := asks(s)
		req.Spec.Pod.Spec.Resources = &resources
		req.Observed = rt.look()
		r.calls = nil
	}
	req.Spec.Pod.Spec.Containers[0].ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}}
	limited("cpu=2 memory=256Mi|cpu=2 memory=256Mi")
	mustSync(t, m, req)
	starts := rt.calls["StartContainer"]
	limited("cpu=2 memory=512Mi|cpu=2 memory=512Mi")
	for range 3 {
		mustSync(t, m, req)
		req.Observed = rt.look()
	}
	if got := rt.calls["StartContainer"] - starts; got != 1 {
		t.Errorf("%d containers are made anew, want c1 once", got)
	}
	if calls := strings.Join(r.calls, "; "); !strings.Contains(calls, "c2-id memory 512") || strings.Contains(calls, "c1-id") {
		t.Errorf("calls %s", calls)
	}
}

// resizing is a pod of two running containers made with from, that asks for to.
func resizing(t *testing.T, from, to [2]string) (*Manager, *resizer, Request) {
	t.Helper()
	w := build(v1.RestartPolicyAlways, nil, "c1", "c2").sandbox(observed.Running, "10.0.0.1").all(observed.Running, 0, "c1", "c2")
	for i := range w.pod.Spec.Containers {
		c := &w.pod.Spec.Containers[i]
		c.Resources = asks(to[i])
		w.obs.Newest(c.Name).Annotations = written(asks(from[i]))
	}
	rt, r := newMemory(), &resizer{}
	rt.pod = *w.obs
	m, err := New(Config{Runtime: rt, Images: present{}, PodLogsDir: t.TempDir(), Resizer: r, Cgroups: r})
	if err != nil {
		t.Fatal(err)
	}
	return m, r, request(t, w, rt.look())
}

// What was just started has what it asked for, whatever the runtime shows.
func TestNoResizeAfterStart(t *testing.T) {
	rt, r, w := newMemory(), &resizer{}, build(v1.RestartPolicyAlways, nil, "c")
	w.pod.Spec.Containers[0].Resources = asks("cpu=1 memory=64Mi|cpu=1 memory=64Mi")
	m, err := New(Config{Runtime: rt, Images: present{}, PodLogsDir: t.TempDir(), Resizer: r})
	if err != nil {
		t.Fatal(err)
	}
	req := request(t, w, nil)
	mustSync(t, m, req)
	req.Observed = rt.look()
	req.Observed.Newest("c").Resources = &observed.Resources{CPUPeriod: 100000, CPUQuota: 99999, CPUShares: 1000, MemoryLimit: 60 << 20}
	mustSync(t, m, req)
	if len(r.calls) > 0 {
		t.Errorf("calls %v", r.calls)
	}
	m.Forget("u")
	mustSync(t, m, req)
	if len(r.calls) == 0 {
		t.Error("what is not known is taken for granted")
	}
}

func TestCheckResize(t *testing.T) {
	pod := func(containers ...string) *v1.Pod {
		p := &v1.Pod{}
		for i, s := range containers {
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: fmt.Sprint("c", i), Resources: asks(s)})
		}
		return p
	}
	for _, c := range []struct {
		name     string
		from, to *v1.Pod
		want     string
	}{
		{"the same", pod("cpu=1"), pod("cpu=1"), ""},
		{"more", pod("cpu=1 memory=1Mi"), pod("cpu=2 memory=2Mi"), ""},
		{"less", pod("cpu=2|cpu=4"), pod("cpu=1|cpu=2"), ""},
		{"a limit more", pod("cpu=1"), pod("cpu=1|cpu=2"), ""},
		{"a request less", pod("cpu=1 memory=1Mi"), pod("cpu=1"), "spec.containers[0].resources.requests.memory: 1Mi cannot be removed"},
		{"a limit less", pod("cpu=1", "cpu=1|cpu=2"), pod("cpu=1", "cpu=1"), "spec.containers[1].resources.limits.cpu: 2 cannot be removed"},
		{"another resource", pod("cpu=1|example.com/gpu=1"), pod("cpu=1|example.com/gpu=2"),
			"spec.containers[0].resources.limits.example.com/gpu: 1 cannot become 2 while the pod runs; only cpu and memory can change"},
		{"another resource, new", pod("cpu=1"), pod("cpu=1 ephemeral-storage=1Gi"), "requests.ephemeral-storage: none cannot become 1Gi"},
		{"another resource, gone", pod("cpu=1 ephemeral-storage=1Gi"), pod("cpu=1"), "requests.ephemeral-storage: 1Gi cannot become none"},
		{"from Burstable to Guaranteed", pod("cpu=1 memory=1Mi|cpu=2 memory=1Mi"), pod("cpu=2 memory=1Mi|cpu=2 memory=1Mi"),
			"quality of service class would become Guaranteed; it has to stay Burstable"},
		{"from BestEffort", pod(""), pod("cpu=1"), "would become Burstable"},
		{"a container more", pod("cpu=1"), pod("cpu=1", "cpu=1 ephemeral-storage=1Gi"), ""},
	} {
		err := CheckResize(c.from, c.to)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	whole := pod("cpu=1")
	whole.Spec.Resources = &v1.ResourceRequirements{Limits: amounts("cpu=4")}
	if err := CheckResize(whole, pod("cpu=1")); err == nil || !strings.Contains(err.Error(), "spec.resources.limits.cpu") {
		t.Errorf("the pod's own limit: %v", err)
	}
}

// The order of updates does not depend on the period that a runtime shows.
func TestQuotasOfOtherPeriods(t *testing.T) {
	to := &runtimeapi.LinuxContainerResources{CpuQuota: 50_000, CpuPeriod: 100_000}
	for quota, lowers := range map[int64]bool{10_000: true, 4_000: false} { // of 10 ms
		u := Update{Resource: v1.ResourceCPU, To: to, From: inPeriod(&runtimeapi.LinuxContainerResources{CpuQuota: quota, CpuPeriod: 10_000}, to.CpuPeriod)}
		if _, grows := earlier(to, []Update{u}); u.Lowers() != lowers || grows == lowers {
			t.Errorf("from %d us of 10 ms to half a CPU: lowers %t, grows %t", quota, u.Lowers(), grows)
		}
	}
}

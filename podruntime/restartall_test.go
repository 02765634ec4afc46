package podruntime

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
)

// startsAllOver gives a container a rule to start the whole pod over.
func startsAllOver(c *v1.Container, codes ...int32) {
	never := v1.ContainerRestartPolicyNever
	if c.RestartPolicy == nil {
		c.RestartPolicy = &never
	}
	c.RestartPolicyRules = []v1.ContainerRestartRule{{
		Action:    v1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: codes},
	}}
}

func TestPlanOfRestartAll(t *testing.T) {
	pod := func() *world { // an init container, a sidecar, and two regular ones, all as they should be
		return build(v1.RestartPolicyNever, []string{"i", "side*"}, "a", "b").sandbox(observed.Running, "10.0.0.1").
			all(observed.Exited, 0, "i").all(observed.Running, 0, "side", "a", "b")
	}
	for name, c := range map[string]struct {
		change func(*world)
		want   string
	}{
		"nobody wants it": {func(*world) {}, ""},
		"a regular container does": {func(w *world) {
			startsAllOver(&w.pod.Spec.Containers[0], 42)
			w.all(observed.Exited, 42, "a")
		}, "b-id i-id side-id a-id"},
		"it ends otherwise": {func(w *world) {
			startsAllOver(&w.pod.Spec.Containers[0], 42)
			w.all(observed.Exited, 41, "a")
		}, ""},
		"it still runs": {func(w *world) { startsAllOver(&w.pod.Spec.Containers[0], 42) }, ""},
		"a sidecar does": {func(w *world) {
			startsAllOver(&w.pod.Spec.InitContainers[1], 42)
			w.all(observed.Exited, 42, "side")
		}, "a-id b-id i-id side-id"},
		"an init container does": {func(w *world) {
			startsAllOver(&w.pod.Spec.InitContainers[0], 42)
			w.drop("a")
			w.drop("b")
			w.drop("side")
			w.all(observed.Exited, 42, "i")
		}, "i-id"},
		"two do": {func(w *world) {
			startsAllOver(&w.pod.Spec.Containers[0], 42)
			startsAllOver(&w.pod.Spec.InitContainers[1], 1)
			w.all(observed.Exited, 42, "a").all(observed.Exited, 1, "side")
		}, "b-id i-id a-id side-id"},
		"earlier instances go too": {func(w *world) {
			startsAllOver(&w.pod.Spec.Containers[0], 42)
			w.all(observed.Exited, 42, "a")
			w.obs.Containers = append(w.obs.Containers, observed.Container{ID: "b-old", Name: "b", State: observed.Exited})
		}, "b-id b-old i-id side-id a-id"},
		"earlier instances of the one that wants it go before it": {func(w *world) {
			startsAllOver(&w.pod.Spec.Containers[0], 42)
			w.all(observed.Exited, 42, "a")
			w.obs.Containers = append(w.obs.Containers, observed.Container{ID: "a-old", Name: "a", State: observed.Exited, ExitCode: new(int32(1))})
		}, "a-old b-id i-id side-id a-id"},
		"the instance before did": {func(w *world) {
			startsAllOver(&w.pod.Spec.Containers[0], 42)
			w.obs.Containers = append(w.obs.Containers, observed.Container{ID: "a-old", Name: "a", State: observed.Exited, ExitCode: new(int32(42))})
		}, ""},
		"the sandbox is gone": {func(w *world) {
			startsAllOver(&w.pod.Spec.Containers[0], 42)
			w.all(observed.Exited, 42, "a").all(observed.Exited, 137, "b", "side").sandbox(observed.Exited)
		}, "b-id i-id side-id a-id"},
		"the pod is being deleted": {func(w *world) {
			startsAllOver(&w.pod.Spec.Containers[0], 42)
			w.all(observed.Exited, 42, "a")
			w.pod.DeletionTimestamp = &metav1.Time{}
		}, ""},
		"an ephemeral container is left alone": {func(w *world) {
			startsAllOver(&w.pod.Spec.Containers[0], 42)
			w.all(observed.Exited, 42, "a")
			w.obs.Containers = append(w.obs.Containers, observed.Container{ID: "debug-id", Name: "debug", State: observed.Running})
		}, "b-id i-id side-id a-id"},
	} {
		t.Run(name, func(t *testing.T) {
			w := pod()
			c.change(w)
			a := Plan(PlanInput{Pod: w.pod, Observed: w.obs})
			if got := strings.Join(a.Reset, " "); got != c.want {
				t.Errorf("reset %q, want %q", got, c.want)
			}
			if source, _ := podlife.RestartsAll(w.pod, w.obs); (source != nil) != (c.want != "") {
				t.Errorf("RestartsAll = %v", c.want == "")
			}
			if c.want != "" && (a.KillPod || a.CreateSandbox || len(a.Init)+len(a.Regular)+len(a.Kill) > 0) {
				t.Errorf("beside the reset there is %+v", a)
			}
		})
	}
}

// A pod starts over in its sandbox, with all containers made anew, and waits
// longer each time, as a container that keeps crashing does.
func TestRestartAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := newMemory(), build(v1.RestartPolicyNever, []string{"i"}, "a", "b")
		startsAllOver(&w.pod.Spec.Containers[0], 42)
		m, req := manager(t, r), request(t, w, nil)
		sync := func() Result {
			req.Observed = r.look()
			return m.Sync(t.Context(), req)
		}
		end := func(name string, code int32) {
			o := r.look().Newest(name)
			_ = r.set(o.ID, observed.Exited)
			byID(&r.pod, o.ID).ExitCode = &code
		}
		runs := func(name string) bool {
			o := r.look().Newest(name)
			return o != nil && o.State == observed.Running
		}
		begin := func() {
			t.Helper()
			if res := sync(); res.Err() != nil || !runs("i") {
				t.Fatalf("init container: %v", res.Err())
			}
			end("i", 0)
			if res := sync(); res.Err() != nil || !runs("a") || !runs("b") {
				t.Fatalf("regular containers: %v", res.Err())
			}
		}
		begin()
		for round, want := range []time.Duration{0, 10 * time.Second, 20 * time.Second} {
			end("a", 42)
			ended := time.Now()
			if want > 0 {
				var held *crashLoopError
				res := sync()
				if err := res.Err(); !errors.As(err, &held) || held.until.Sub(ended) != want || !runs("b") {
					t.Fatalf("round %d: %v, b runs: %v; want a wait of %v", round, err, runs("b"), want)
				}
				if m.StartErrors(podlife.Life{UID: "u"})["a"].Reason != string(podlife.CrashLoop) {
					t.Error("the wait is not shown")
				}
				time.Sleep(want)
			}
			begin()
			if pod := r.look(); len(pod.Sandboxes) != 1 || len(pod.Containers) != 3 {
				t.Fatalf("round %d: %d sandboxes and %d containers", round, len(pod.Sandboxes), len(pod.Containers))
			}
		}
	})
}

// Whatever call fails, or is the agent's last: the pod starts over in the end,
// and what wanted it is there until all others are gone.
func TestRestartAllInterrupted(t *testing.T) {
	for _, call := range []string{"StopContainer", "RemoveContainer"} {
		for _, effect := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				r, w := newMemory(), build(v1.RestartPolicyNever, nil, "a", "b")
				startsAllOver(&w.pod.Spec.Containers[0], 42)
				m, req := manager(t, r), request(t, w, nil)
				mustSync(t, m, req)
				first := r.look()
				a := first.Newest("a").ID
				_ = r.set(a, observed.Exited)
				byID(&r.pod, a).ExitCode = new(int32(42))
				r.fail[call], r.after[call] = errors.New("injected"), effect
				req.Observed = r.look()
				if res := m.Sync(t.Context(), req); res.Err() == nil {
					t.Fatal("no error")
				}
				if r.look().Newest("a") == nil {
					t.Fatal("what wanted it went first")
				}
				clear(r.fail)
				req.Observed = r.look()
				mustSync(t, manager(t, r), req) // another life of the agent
				for _, name := range []string{"a", "b"} {
					if o := r.look().Newest(name); o == nil || o.State != observed.Running {
						t.Errorf("%s does not run: %+v", name, o)
					}
				}
			})
		}
	}
}

package podruntime

import (
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podspec"
)

// world is a pod and what the runtime shows of it, for one row of the table.
type world struct {
	pod           *v1.Pod
	life          uint32
	obs           *observed.Pod
	live, startup map[string]ProbeResult
}

// regulars is a running pod with three regular containers c1..c3.
func regulars(policy v1.RestartPolicy) *world {
	return build(policy, nil, "c1", "c2", "c3").sandbox(observed.Running, "10.0.0.1").all(observed.Running, 0, "c1", "c2", "c3")
}

func build(policy v1.RestartPolicy, init []string, names ...string) *world {
	w := &world{pod: &v1.Pod{}, obs: &observed.Pod{}, live: map[string]ProbeResult{}, startup: map[string]ProbeResult{}}
	w.pod.Name, w.pod.Namespace, w.pod.UID = "pod", "ns", "u"
	w.pod.Spec.RestartPolicy = policy
	for _, n := range init {
		c := v1.Container{Name: strings.TrimSuffix(n, "*"), Image: "img"}
		if strings.HasSuffix(n, "*") { // a sidecar
			always := v1.ContainerRestartPolicyAlways
			c.RestartPolicy = &always
		}
		w.pod.Spec.InitContainers = append(w.pod.Spec.InitContainers, c)
	}
	for _, n := range names {
		w.pod.Spec.Containers = append(w.pod.Spec.Containers, v1.Container{Name: n, Image: "img"})
	}
	return w
}

func (w *world) sandbox(s observed.State, ips ...string) *world {
	w.obs.Sandboxes = []observed.Sandbox{{ID: "s", State: s, HasNetwork: true, IPs: ips}}
	return w
}

// all sets the state of containers, adding those that are not there yet.
func (w *world) all(s observed.State, code int32, names ...string) *world {
	for _, n := range names {
		o := observed.Container{ID: n + "-id", Name: n, SandboxID: "s", State: s, ExitCode: told(code)}
		if c, _, _, err := podspec.Find(w.pod, n); err == nil {
			o.Hash = podspec.Hash(c)
		}
		w.drop(n)
		w.obs.Containers = append(w.obs.Containers, o)
	}
	return w
}

// older adds an instance before the others that runs.
func (w *world) older(name string) *world {
	w.obs.Containers = append(w.obs.Containers, observed.Container{ID: name + "-older", Name: name, SandboxID: "s", State: observed.Running})
	return w
}

// unknown has the runtime not tell the state of an instance.
func (w *world) unknown(id string) *world {
	for i := range w.obs.Containers {
		if w.obs.Containers[i].ID == id {
			w.obs.Containers[i].State = observed.Unknown
		}
	}
	return w
}

func (w *world) drop(name string) *world {
	var kept []observed.Container
	for _, c := range w.obs.Containers {
		if c.Name != name {
			kept = append(kept, c)
		}
	}
	w.obs.Containers = kept
	return w
}

func (w *world) edit(name string) *world {
	for i := range w.obs.Containers {
		if w.obs.Containers[i].Name == name {
			w.obs.Containers[i].Hash = "other"
		}
	}
	return w
}

func (w *world) ephemeral(names ...string) *world {
	for _, n := range names {
		w.pod.Spec.EphemeralContainers = append(w.pod.Spec.EphemeralContainers,
			v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: n}})
	}
	return w
}

func (w *world) probes(name string, live, startup ProbeResult) *world {
	w.live[name+"-id"], w.startup[name+"-id"] = live, startup
	for i := range w.pod.Spec.InitContainers {
		if c := &w.pod.Spec.InitContainers[i]; c.Name == name {
			if live != ProbeNone {
				c.LivenessProbe = &v1.Probe{}
			}
			if startup != ProbeNone {
				c.StartupProbe = &v1.Probe{}
			}
		}
	}
	return w
}

func (w *world) startupProbe(name string) *world {
	for i := range w.pod.Spec.InitContainers {
		if c := &w.pod.Spec.InitContainers[i]; c.Name == name {
			c.StartupProbe = &v1.Probe{}
		}
	}
	return w
}

// own gives all regular containers their own restart policy.
func (w *world) own(p v1.ContainerRestartPolicy) *world {
	for i := range w.pod.Spec.Containers {
		w.pod.Spec.Containers[i].RestartPolicy = &p
	}
	return w
}

// plan says in a line what the plan is.
func (w *world) plan() string {
	a := Plan(PlanInput{Pod: w.pod, Observed: w.obs,
		Liveness: func(id string) ProbeResult { return w.live[id] },
		Startup:  func(id string) ProbeResult { return w.startup[id] }})
	var parts []string
	if a.KillPod {
		parts = append(parts, "killpod")
	}
	if a.CreateSandbox {
		parts = append(parts, fmt.Sprint("create@", a.Attempt))
	}
	for _, l := range []struct {
		name string
		idx  []int
	}{{"init", a.Init}, {"run", a.Regular}, {"eph", a.Ephemeral}} {
		if len(l.idx) > 0 {
			parts = append(parts, l.name+strings.ReplaceAll(fmt.Sprint(l.idx), " ", ","))
		}
	}
	var kills []string
	for _, k := range a.Kill {
		kills = append(kills, "kill("+k.Name+" "+string(k.Why)+")")
	}
	sort.Strings(kills)
	return strings.Join(append(parts, kills...), " ")
}

func TestPlan(t *testing.T) {
	const (
		always, onFailure, never = v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever
		running, exited, created = observed.Running, observed.Exited, observed.Created
		unknown                  = observed.Unknown
	)
	mixed := func(w *world) *world { return w.all(exited, 0, "c1").all(exited, 1, "c2") }
	inits := func(p v1.RestartPolicy) *world {
		return build(p, []string{"i1", "i2", "i3"}, "c1", "c2", "c3").sandbox(running, "10.0.0.1")
	}
	sides := func(p v1.RestartPolicy) *world {
		return build(p, []string{"r1*", "r2*", "r3*"}, "c1", "c2", "c3").sandbox(running, "10.0.0.1")
	}
	sidesUp := func(p v1.RestartPolicy) *world { return sides(p).all(running, 0, "r1", "r2", "r3", "c1", "c2", "c3") }
	dead := func(w *world) *world { return w.sandbox(exited) }
	for _, tt := range []struct {
		name string
		w    *world
		want string
	}{
		{"everything runs", regulars(always), ""},
		{"new pod", build(always, nil, "c1", "c2", "c3"), "killpod create@0 run[0,1,2]"},
		{"exited, Always", mixed(regulars(always)), "run[0,1]"},
		{"exited, OnFailure", mixed(regulars(onFailure)), "run[1]"},
		{"exited, Never", mixed(regulars(never)), ""},
		{"created, Always", regulars(always).all(created, 0, "c1", "c2"), "run[0,1]"},
		{"created, OnFailure", regulars(onFailure).all(created, 0, "c1", "c2"), "run[0,1]"},
		{"created, Never", regulars(never).all(created, 0, "c1", "c2"), "run[0,1]"},
		{"sandbox dead, Always", dead(regulars(always)), "killpod create@1 run[0,1,2]"},
		{"sandbox dead, OnFailure", dead(regulars(onFailure).all(exited, 0, "c2")), "killpod create@1 run[0,2]"},
		{"sandbox without address", regulars(always).sandbox(running), "killpod create@1 run[0,1,2]"},
		{"sandbox dead, Never, all exited", dead(regulars(never).all(exited, 0, "c1", "c2", "c3")), "killpod"},
		{"sandbox dead, OnFailure, all succeeded", dead(regulars(onFailure).all(exited, 0, "c1", "c2", "c3")), "killpod"},
		{"sandbox dead, Never, nothing ever ran", dead(regulars(never).drop("c1").drop("c2").drop("c3")), "killpod create@1 run[0,1,2]"},
		{"definition changed", regulars(always).edit("c2"), "run[1] kill(c2 ContainerChanged)"},
		{"definition changed, Never", regulars(never).edit("c2"), "run[1] kill(c2 ContainerChanged)"},
		{"liveness", regulars(always).probes("c2", ProbeFailure, ProbeNone), "run[1] kill(c2 LivenessProbe)"},
		{"liveness, Never", regulars(never).probes("c2", ProbeFailure, ProbeNone), "kill(c2 LivenessProbe)"},
		{"startup", regulars(always).probes("c2", ProbeNone, ProbeFailure), "run[1] kill(c2 StartupProbe)"},
		{"unknown", regulars(always).all(unknown, 0, "c2"), "run[1] kill(c2 Unknown)"},
		{"runs twice", regulars(always).older("c2"), "kill(c2 SurplusInstance)"},
		{"may run twice", regulars(always).older("c2").unknown("c2-older"), "kill(c2 SurplusInstance)"},
		{"runs twice, the newer one ended", regulars(always).all(exited, 1, "c2").older("c2"), "run[1] kill(c2 SurplusInstance)"},
		{"runs twice, the newer one ended, Never", regulars(never).all(exited, 1, "c2").older("c2"), "kill(c2 SurplusInstance)"},
		{"runs twice, in init", inits(always).all(running, 0, "i1").older("i1"), "kill(i1 SurplusInstance)"},
		{"runs twice, sandbox dead", dead(regulars(always).older("c2")), "killpod create@1 run[0,1,2]"},
		{"all done, Never", regulars(never).all(exited, 0, "c1", "c2", "c3"), "killpod"},

		{"init: last done", inits(always).all(exited, 0, "i1", "i2", "i3"), "run[0,1,2]"},
		{"init: none", inits(always), "init[0]"},
		{"init: first runs", inits(always).all(running, 0, "i1"), ""},
		{"init: first done", inits(always).all(exited, 0, "i1"), "init[1]"},
		{"init: sandbox dead", dead(inits(always).all(exited, 0, "i1", "i2")), "killpod create@1 init[0]"},
		{"init: failed, Always", inits(always).all(exited, 0, "i1", "i2").all(exited, 1, "i3"), "init[2]"},
		{"init: failed, OnFailure", inits(onFailure).all(exited, 0, "i1", "i2").all(exited, 1, "i3"), "init[2]"},
		{"init: failed, Never", inits(never).all(exited, 0, "i1", "i2").all(exited, 1, "i3"), "killpod"},
		{"init: unknown, Always", inits(always).all(exited, 0, "i1").all(unknown, 0, "i2"), "init[1] kill(i2 Unknown)"},
		{"init: unknown, OnFailure", inits(onFailure).all(exited, 0, "i1").all(unknown, 0, "i2"), "init[1] kill(i2 Unknown)"},
		{"init: unknown, Never", inits(never).all(exited, 0, "i1").all(unknown, 0, "i2"), "killpod"},
		{"init: sandbox dead, failed, Never", dead(inits(never).all(exited, 1, "i3")), "killpod"},
		{"init: sandbox dead, failed, OnFailure", dead(inits(onFailure).all(exited, 1, "i3")), "killpod create@1 init[0]"},
		{"init: sandbox dead, done, Never", dead(inits(never).all(exited, 0, "i1", "i2", "i3")), "killpod create@1 init[0]"},
		{"init: sandbox dead, done, Never, created", dead(inits(never).all(exited, 0, "i1", "i2", "i3").all(created, 0, "c1")), "killpod create@1 init[0]"},
		{"init: sandbox dead, done, Never, one began", dead(inits(never).all(exited, 0, "i1", "i2", "i3").all(exited, 0, "c1")), "killpod"},
		{"init: sandbox dead, running, Never", dead(inits(never).all(exited, 0, "i1").all(running, 0, "i2")), "killpod"},
		{"init: sandbox dead, unknown, Never", dead(inits(never).all(exited, 0, "i1").all(unknown, 0, "i2")), "killpod"},
		{"sidecar: sandbox dead, ended, Never", dead(sides(never).all(exited, 137, "r1")), "killpod create@1 init[0]"},
		{"init: sandbox dead, Never, nothing seen", dead(inits(never)), "killpod create@1 init[0]"},
		{"init: earlier ones missing", inits(always).all(running, 0, "i3"), ""},
		{"init: created", inits(always).all(exited, 0, "i1", "i2").all(created, 0, "i3"), "init[2]"},
		{"init: mains run", inits(always).all(running, 0, "c1", "c2", "c3"), ""},

		{"sidecar: started, next", sides(always).all(running, 0, "r1"), "init[1]"},
		{"sidecar: created", sides(always).all(created, 0, "r1"), "init[0]"},
		{"sidecar: liveness none", sides(always).all(running, 0, "r1").probes("r1", ProbeUnknown, ProbeNone), "init[1]"},
		{"sidecar: startup missing", sides(always).all(running, 0, "r1").startupProbe("r1"), ""},
		{"sidecar: startup unknown", sides(always).all(running, 0, "r1").probes("r1", ProbeNone, ProbeUnknown), ""},
		{"sidecar: startup ok", sides(always).all(running, 0, "r1").probes("r1", ProbeNone, ProbeSuccess), "init[1]"},
		{"sidecar: startup failed", sides(always).all(running, 0, "r1").probes("r1", ProbeNone, ProbeFailure), "init[0] kill(r1 StartupProbe)"},
		{"sidecar: liveness failed", sidesUp(always).probes("r3", ProbeFailure, ProbeNone), "init[2] kill(r3 LivenessProbe)"},
		{"sidecar: changed", sidesUp(always).edit("r3"), "init[2] kill(r3 ContainerChanged)"},
		{"sidecar: ended in init", sides(always).all(exited, 0, "r1"), "init[0]"},
		{"sidecar: ended in init, later one runs", sides(always).all(exited, 0, "r1").all(running, 0, "r2"), "init[0,2]"},
		{"sidecar: ended after", sidesUp(always).all(exited, 0, "r1"), "init[0]"},
		{"sidecar: ended after, main too", sidesUp(always).all(exited, 0, "r1", "c1"), "init[0] run[0]"},
		{"sidecar: ended, Never, mains run", sidesUp(never).all(exited, 1, "r1"), "init[0]"},
		{"sidecar: unknown, Never", sidesUp(never).all(unknown, 0, "r1"), "init[0] kill(r1 Unknown)"},
		{"sidecar: mains done, Never", sidesUp(never).all(exited, 0, "c1", "c2", "c3"), "killpod"},
		{"sidecar: earlier ones missing", sides(always).all(running, 0, "r3"), "init[0,1] run[0,1,2]"},

		{"ephemeral: runs", regulars(always).ephemeral("e1").all(running, 0, "e1"), ""},
		{"ephemeral: none", regulars(always).ephemeral("e1"), "eph[0]"},
		{"ephemeral: second", regulars(always).ephemeral("e1", "e2").all(running, 0, "e1"), "eph[1]"},
		{"ephemeral: ended", regulars(always).ephemeral("e1").all(exited, 0, "e1"), ""},
		{"ephemeral: unknown", regulars(always).ephemeral("e1").all(unknown, 0, "e1"), ""},
		{"ephemeral: init runs", inits(always).all(running, 0, "i1").ephemeral("e1"), "eph[0]"},
		{"ephemeral: sandbox dead", dead(regulars(always).ephemeral("e1").all(running, 0, "e1")), "killpod create@1 run[0,1,2]"},
		{"ephemeral: alone", regulars(never).all(exited, 0, "c1", "c2", "c3").ephemeral("e1").all(running, 0, "e1"), "killpod"},

		{"own Always over Never", mixed(regulars(never)).own(v1.ContainerRestartPolicyAlways), "run[0,1]"},
		{"own OnFailure over Never", mixed(regulars(never)).own(v1.ContainerRestartPolicyOnFailure), "run[1]"},
		{"own Never over Always", mixed(regulars(always)).own(v1.ContainerRestartPolicyNever), ""},
		{"own Never over OnFailure, sandbox dead, all succeeded", dead(regulars(onFailure).all(exited, 0, "c1", "c2", "c3").own(v1.ContainerRestartPolicyNever)), "killpod"},
		{"own Never over Always, sandbox dead, all failed", dead(regulars(always).all(exited, 1, "c1", "c2", "c3").own(v1.ContainerRestartPolicyNever)), "killpod"},
		{"own OnFailure, sandbox dead", dead(regulars(always).all(exited, 0, "c2").own(v1.ContainerRestartPolicyOnFailure)), "killpod create@1 run[0,2]"},
		{"own OnFailure, all succeeded, sandbox dead", dead(regulars(always).all(exited, 0, "c1", "c2", "c3").own(v1.ContainerRestartPolicyOnFailure)), "killpod"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod, obs := tt.w.pod.DeepCopy(), *tt.w.obs
			if got := tt.w.plan(); got != tt.want {
				t.Errorf("plan = %q, want %q", got, tt.want)
			}
			if !reflect.DeepEqual(pod, tt.w.pod) || !reflect.DeepEqual(obs, *tt.w.obs) {
				t.Error("the plan changed its input")
			}
		})
	}
}

// untold is the exit code, in the tables of these tests, of a container whose code the runtime
// has not told.
const untold int32 = -1

// told is an exit code as an observation has it.
func told(code int32) *int32 {
	if code == untold {
		return nil
	}
	return &code
}

// A container whose exit code is not known yet is neither started by a rule nor
// taken for over.
func TestPlanWithoutAnExitCode(t *testing.T) {
	notKilled := func(c *v1.Container) { // restarts unless it was killed
		c.RestartPolicy = new(v1.ContainerRestartPolicyNever)
		c.RestartPolicyRules = []v1.ContainerRestartRule{{
			Action:    v1.ContainerRestartRuleActionRestart,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpNotIn, Values: []int32{137}},
		}}
	}
	plan := func(w *world) Actions { return Plan(PlanInput{Pod: w.pod, Observed: w.obs}) }
	for code, starts := range map[int32]int{untold: 0, 137: 0, 1: 1} {
		w := build(v1.RestartPolicyNever, nil, "a", "b").sandbox(observed.Running, "10.0.0.1").all(observed.Running, 0, "b").all(observed.Exited, code, "a")
		notKilled(&w.pod.Spec.Containers[0])
		if a := plan(w); len(a.Regular) != starts || a.KillPod {
			t.Errorf("a container that ended with %d: %+v", code, a)
		}
		if w.drop("b"); len(w.pod.Spec.Containers) == 2 {
			w.pod.Spec.Containers = w.pod.Spec.Containers[:1]
		}
		if a := plan(w); len(a.Regular) != starts || a.KillPod != (code == 137) {
			t.Errorf("the only container, which ended with %d: %+v", code, a)
		}
		w = build(v1.RestartPolicyNever, []string{"i"}, "a").sandbox(observed.Running, "10.0.0.1").all(observed.Exited, code, "i")
		w.drop("a")
		notKilled(&w.pod.Spec.InitContainers[0])
		if a := plan(w); len(a.Init) != starts || a.KillPod != (code == 137) {
			t.Errorf("an init container that ended with %d: %+v", code, a)
		}
	}
}

// Nothing that runs gives way to a definition that may be older than its own; probes count.
func TestUnsurePlan(t *testing.T) {
	w := regulars(v1.RestartPolicyAlways).edit("c2")
	if a := Plan(PlanInput{Pod: w.pod, Observed: w.obs, Unsure: true}); !a.Empty() {
		t.Errorf("%+v", a)
	}
	fails := func(string) ProbeResult { return ProbeFailure }
	if a := Plan(PlanInput{Pod: w.pod, Observed: w.obs, Unsure: true, Liveness: fails}); len(a.Kill) != 3 || a.Kill[1].Why != podlife.LivenessFailed {
		t.Errorf("%+v", a.Kill)
	}
}

// While containers wait there is nothing to do for them, and the plan says until when.
func TestPlanOfWaitingContainers(t *testing.T) {
	at := time.Unix(1, 0)
	w := build(v1.RestartPolicyAlways, nil, "a", "b").sandbox(observed.Running, "10.0.0.1").all(observed.Running, 0, "b").all(observed.Exited, 1, "a").ephemeral("e")
	a := Plan(PlanInput{Pod: w.pod, Observed: w.obs, Waits: func(c *v1.Container, _ *observed.Container) (time.Time, podlife.Kind) {
		return at, podlife.CrashLoop
	}})
	if want := []Wait{{"e", at, podlife.CrashLoop}, {"a", at, podlife.CrashLoop}}; !a.Empty() || !slices.Equal(a.Wait, want) {
		t.Errorf("%+v", a)
	}
}

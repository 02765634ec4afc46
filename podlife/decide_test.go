package podlife

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podmeta"
)

// shown is what the runtime may show of one container.
type shown struct {
	name  string
	there bool
	state observed.State
	code  *int32
}

var allShown = []shown{
	{name: "none"}, {"created", true, observed.Created, nil}, {"running", true, observed.Running, nil}, {"unknown", true, observed.Unknown, nil},
	{"succeeded", true, observed.Exited, new(int32)}, {"failed", true, observed.Exited, new(int32(1))}, {"killed, code not told", true, observed.Exited, nil},
}

// rule restarts a container unless it was killed.
var rule = []v1.ContainerRestartRule{{
	Action:    v1.ContainerRestartRuleActionRestart,
	ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpNotIn, Values: []int32{137}},
}}

// situation is one point of the product of all that a decision depends on.
type situation struct {
	k    Knowledge
	name func() string
}

// situations calls check for each: a pod of up to one init container or sidecar and two
// regular containers.
func situations(check func(situation)) {
	never, always := v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyAlways
	for _, policy := range []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever} {
		for _, sandbox := range []string{"none", "ready", "not ready"} {
			for _, deleted := range []bool{false, true} {
				for _, ruled := range []bool{false, true} {
					for _, health := range []observed.Answer{observed.Maybe, observed.No, observed.Yes} {
						for _, edited := range []bool{false, true} {
							for _, kind := range []string{"", "init", "sidecar"} {
								for _, i := range allShown {
									if kind == "" && i.there {
										continue
									}
									for _, a := range allShown {
										for _, b := range allShown {
											pod, obs := &v1.Pod{}, &observed.Pod{}
											pod.Spec.RestartPolicy = policy
											if deleted {
												pod.DeletionTimestamp = &metav1.Time{}
											}
											if sandbox != "none" {
												s := observed.Sandbox{ID: "s", State: observed.Exited}
												if sandbox == "ready" {
													s.State = observed.Running
												}
												obs.Sandboxes = append(obs.Sandboxes, s)
											}
											show := func(name string, s shown) {
												if s.there {
													obs.Containers = append(obs.Containers, observed.Container{ID: name + "-id", Name: name, SandboxID: "s", State: s.state, ExitCode: s.code})
												}
											}
											if kind != "" {
												c := v1.Container{Name: "i"}
												if kind == "sidecar" {
													c.RestartPolicy = &always
												}
												pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
												show("i", i)
											}
											pod.Spec.Containers = []v1.Container{{Name: "a"}, {Name: "b"}}
											if ruled {
												pod.Spec.Containers[0].RestartPolicy, pod.Spec.Containers[0].RestartPolicyRules = &never, rule
											}
											show("a", a)
											show("b", b)
											k := Knowledge{Pod: pod, Runtime: obs, Alive: func(string) observed.Answer { return health }}
											if edited {
												k.Changed = func(*v1.Container, *observed.Container) bool { return true }
											}
											check(situation{k, func() string {
												return fmt.Sprintf("policy %s, sandbox %s, deleted %t, rules %t, alive %v, edited %t, %s %s, a %s, b %s",
													policy, sandbox, deleted, ruled, health, edited, kind, i.name, a.name, b.name)
											}})
										}
									}
								}
							}
						}
					}
				}
			}
		}
	}
}

// What holds of every decision, whatever is known.
func TestDecideProperties(t *testing.T) {
	n, wrong := 0, 0
	situations(func(s situation) {
		n++
		pod, obs, d := s.k.Pod, s.k.Runtime, Decide(s.k)
		bad := func(rule string) {
			if wrong++; wrong < 20 {
				t.Errorf("%s: %s: %+v", rule, s.name(), d)
			}
		}
		deleted, lasts := pod.DeletionTimestamp != nil, false
		initDone := true
		each := func(specs []v1.Container, acts []Act, init bool) {
			for i := range specs {
				c, act := &specs[i], acts[i]
				o := obs.Newest(c.Name)
				runs := o != nil && o.State == observed.Running
				mayRun := o != nil && o.State.Runs() != observed.No
				starts := act.Do == Start || act.Do == End && act.Again
				if !init || !podmeta.IsSidecar(c) {
					lasts = lasts || act.Do == Keep || act.Comes()
				}
				if init && !podmeta.IsSidecar(c) && act.Do != Never {
					initDone = false
				}
				switch {
				case deleted && act.Comes():
					bad("a pod that is being deleted starts something")
				case d.Over && (act.Do == Keep || act.Comes()):
					bad("something goes on in a pod that is over")
				case d.Sandbox.Lack == "" && act.Do == Start && mayRun:
					bad("an instance is started beside one that may run")
				case act.Do == Keep && !runs:
					bad("what does not run is kept")
				case act.Do == End && !mayRun:
					bad("what does not run is ended")
				case act.Do == End && act.Why == "":
					bad("an end has no cause")
				case starts && o != nil && o.State == observed.Exited && !podmeta.IsSidecar(c) && !(init && d.Sandbox.Make) &&
					(o.ExitCode == nil && len(c.RestartPolicyRules) > 0 || !podmeta.RestartsAfter(pod, c, o.Code())):
					bad("a container is started against its policy, or before its exit code is known")
				case !deleted && !d.Over && runs && d.Sandbox.Lack == "" && act.Do == Never && !(init && !podmeta.IsSidecar(c)):
					bad("a container that runs is forgotten")
				}
				if !init && act.Do == Start && !initDone && d.Sandbox.Lack == "" {
					bad("a regular container is started before the init containers are done")
				}
			}
		}
		each(pod.Spec.InitContainers, d.Init, true)
		each(pod.Spec.Containers, d.Regular, false)
		switch {
		case !d.Over && !lasts:
			bad("nothing is left of a pod that goes on")
		case d.Sandbox.Make && (d.Over || d.Sandbox.Lack == ""):
			bad("a sandbox is made that nobody needs")
		case deleted && d.Sandbox.Make:
			bad("a sandbox is made for a pod that is being deleted")
		}
	})
	t.Logf("%d situations", n)
}

// The same knowledge gives the same decision, and is not changed.
func TestDecideIsPure(t *testing.T) {
	n := 0
	situations(func(s situation) {
		if n++; n%101 != 0 {
			return
		}
		before := fmt.Sprintf("%+v %+v", *s.k.Pod, *s.k.Runtime)
		a, b := Decide(s.k), Decide(s.k)
		if fmt.Sprintf("%+v", a) != fmt.Sprintf("%+v", b) || fmt.Sprintf("%+v %+v", *s.k.Pod, *s.k.Runtime) != before {
			t.Fatal(s.name())
		}
	})
}

// A wait takes the place of a start, and changes nothing else.
func TestDecideWaits(t *testing.T) {
	at := time.Unix(1, 0)
	situations(func(s situation) {
		free := Decide(s.k)
		s.k.Waits = func(*v1.Container, *observed.Container) (time.Time, Kind) { return at, CrashLoop }
		held := Decide(s.k)
		for i, acts := range [][]Act{held.Init, held.Regular} {
			for j, act := range acts {
				want := [][]Act{free.Init, free.Regular}[i][j]
				if want.Do == Start {
					want = Act{Do: Wait, Why: CrashLoop, Until: at}
				}
				if act != want {
					t.Fatalf("%s: %+v, want %+v", s.name(), act, want)
				}
			}
		}
		if free.Over != held.Over || free.Sandbox != held.Sandbox {
			t.Fatalf("%s: %+v, without waits %+v", s.name(), held, free)
		}
	})
}

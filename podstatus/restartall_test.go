package podstatus

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/cri/observed"
)

// restartsAllAfter42 gives a container a rule that restarts the whole pod when
// it ends with exit code 42.
func restartsAllAfter42(c v1.Container) v1.Container {
	if c.RestartPolicy == nil {
		never := v1.ContainerRestartPolicyNever
		c.RestartPolicy = &never
	}
	c.RestartPolicyRules = []v1.ContainerRestartRule{{
		Action:    v1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
	}}
	return c
}

// A pod is looked at, container by container, while all of it is restarted.
func TestRestartAllSequences(t *testing.T) {
	type list = []observed.Container
	at := func(name string, state observed.State, code, restarts int32) observed.Container {
		age := time.Duration(100-restarts) * time.Second
		return observe(state, name, code, restarts, age)
	}
	type look struct {
		obs list
		all bool // the restart is under way
		// goesOn says so where the container that wanted it is gone.
		goesOn bool
		want   map[string]string
		is     v1.PodPhase
	}
	const (
		waits      = "waiting PodInitializing, last none, restarts 0"
		creates    = "waiting ContainerCreating, last none, restarts 0"
		taken      = "waiting RestartingAllContainers, last terminated 137 RestartingAllContainers, restarts 1"
		takenPlain = "waiting RestartingAllContainers, last terminated 137 RestartingAllContainers, restarts 1"
		runs       = "running, last none, restarts 0"
		runsAgain  = "running, last terminated 137 RestartingAllContainers, restarts 1"
		triggered  = "terminated 42 Error, last none, restarts 0"
		killed     = "terminated 137 Error, last none, restarts 0"
		done       = "terminated 0 Completed, last none, restarts 0"
	)
	init, main := v1.Container{Name: "i", Image: "i"}, v1.Container{Name: "m", Image: "i"}
	plain, ctrl := v1.Container{Name: "a", Image: "i"}, restartsAllAfter42(v1.Container{Name: "m", Image: "i"})
	for _, tc := range []struct {
		name        string
		init, mains []v1.Container
		looks       []look
	}{
		{name: "one container", mains: []v1.Container{ctrl}, looks: []look{
			{obs: list{at("m", observed.Running, 0, 0)}, want: map[string]string{"m": runs}, is: v1.PodRunning},
			{obs: list{at("m", observed.Exited, 42, 0)}, want: map[string]string{"m": triggered}, is: v1.PodRunning},
			{all: true, want: map[string]string{"m": takenPlain}, is: v1.PodRunning},
			{all: true, want: map[string]string{"m": takenPlain}, is: v1.PodRunning}, // counted once
			{want: map[string]string{"m": takenPlain}, is: v1.PodRunning},
			{obs: list{at("m", observed.Running, 0, 1)}, want: map[string]string{"m": runsAgain}, is: v1.PodRunning},
		}},
		{name: "a main takes another with it", mains: []v1.Container{plain, ctrl}, looks: []look{
			{obs: list{at("a", observed.Running, 0, 0), at("m", observed.Running, 0, 0)}, want: map[string]string{"a": runs, "m": runs}, is: v1.PodRunning},
			{all: true, obs: list{at("a", observed.Exited, 137, 0), at("m", observed.Exited, 42, 0)}, want: map[string]string{"a": killed, "m": triggered}, is: v1.PodRunning},
			{all: true, obs: list{at("m", observed.Exited, 42, 0)}, want: map[string]string{"a": takenPlain, "m": triggered}, is: v1.PodRunning},
			{all: true, want: map[string]string{"a": takenPlain, "m": takenPlain}, is: v1.PodRunning},
			{obs: list{at("a", observed.Running, 0, 1)}, want: map[string]string{"a": runsAgain, "m": takenPlain}, is: v1.PodRunning},
			{obs: list{at("a", observed.Running, 0, 1), at("m", observed.Running, 0, 1)}, want: map[string]string{"a": runsAgain, "m": runsAgain}, is: v1.PodRunning},
		}},
		{name: "nobody looks meanwhile", init: []v1.Container{init}, mains: []v1.Container{plain, ctrl}, looks: []look{
			{obs: list{at("i", observed.Exited, 0, 0), at("a", observed.Running, 0, 0), at("m", observed.Running, 0, 0)}, want: map[string]string{"i": done, "a": runs, "m": runs}, is: v1.PodRunning},
			{obs: list{at("i", observed.Exited, 0, 1), at("a", observed.Running, 0, 1), at("m", observed.Running, 0, 1)}, want: map[string]string{
				"i": "terminated 0 Completed, last terminated 0 Completed, restarts 1", "a": runsAgain, "m": runsAgain}, is: v1.PodRunning},
		}},
		{name: "nobody looks before an init container runs again", init: []v1.Container{init, sidecar("s")}, mains: []v1.Container{plain, ctrl}, looks: []look{
			{obs: list{at("i", observed.Exited, 0, 0), at("s", observed.Running, 0, 0), at("a", observed.Running, 0, 0), at("m", observed.Running, 0, 0)},
				want: map[string]string{"i": done, "s": runs, "a": runs, "m": runs}, is: v1.PodRunning},
			{all: true, obs: list{at("i", observed.Exited, 0, 0), at("s", observed.Running, 0, 0), at("a", observed.Running, 0, 0), at("m", observed.Exited, 42, 0)},
				want: map[string]string{"i": done, "s": runs, "a": runs, "m": triggered}, is: v1.PodRunning},
			{goesOn: true, obs: list{at("i", observed.Running, 0, 1)}, want: map[string]string{
				"i": "running, last terminated 0 Completed, restarts 1", "s": taken, "a": taken, "m": taken}, is: v1.PodPending},
			{obs: list{at("i", observed.Exited, 0, 1), at("s", observed.Running, 0, 1)}, want: map[string]string{
				"i": "terminated 0 Completed, last terminated 0 Completed, restarts 1", "s": runsAgain, "a": taken, "m": taken}, is: v1.PodRunning},
		}},
		{name: "a main, after init containers", init: []v1.Container{init}, mains: []v1.Container{ctrl}, looks: []look{
			{obs: list{at("i", observed.Exited, 0, 0), at("m", observed.Running, 0, 0)}, want: map[string]string{"i": done, "m": runs}, is: v1.PodRunning},
			{obs: list{at("i", observed.Exited, 0, 0), at("m", observed.Exited, 42, 0)}, want: map[string]string{"i": done, "m": triggered}, is: v1.PodRunning},
			// The init container is to run again, though its main is still there.
			{all: true, obs: list{at("m", observed.Exited, 42, 0)}, want: map[string]string{"i": taken, "m": triggered}, is: v1.PodPending},
			{all: true, want: map[string]string{"i": taken, "m": taken}, is: v1.PodPending},
			{obs: list{at("i", observed.Running, 0, 1)}, want: map[string]string{"i": runsAgain, "m": taken}, is: v1.PodPending},
			{obs: list{at("i", observed.Exited, 0, 1), at("m", observed.Running, 0, 1)},
				want: map[string]string{"i": "terminated 0 Completed, last terminated 137 RestartingAllContainers, restarts 1", "m": runsAgain}, is: v1.PodRunning},
		}},
		{name: "a main, whose init containers were cleaned away", init: []v1.Container{init}, mains: []v1.Container{ctrl}, looks: []look{
			{obs: list{at("m", observed.Running, 0, 0)}, want: map[string]string{"i": done, "m": runs}, is: v1.PodRunning},
			{all: true, obs: list{at("m", observed.Exited, 42, 0)}, want: map[string]string{"i": taken, "m": triggered}, is: v1.PodPending},
			{all: true, want: map[string]string{"i": taken, "m": taken}, is: v1.PodPending},
		}},
		{name: "an init container", init: []v1.Container{init, restartsAllAfter42(v1.Container{Name: "j", Image: "i"})}, mains: []v1.Container{main}, looks: []look{
			{obs: list{at("i", observed.Exited, 0, 0), at("j", observed.Exited, 42, 0)}, want: map[string]string{"i": done, "j": triggered, "m": waits}, is: v1.PodPending},
			{all: true, obs: list{at("j", observed.Exited, 42, 0)}, want: map[string]string{"i": taken, "j": triggered, "m": waits}, is: v1.PodPending},
			{all: true, want: map[string]string{"i": taken, "j": taken, "m": waits}, is: v1.PodPending}, // m was not there to be taken
			{obs: list{at("i", observed.Running, 0, 1)}, want: map[string]string{"i": runsAgain, "j": taken, "m": waits}, is: v1.PodPending},
		}},
		{name: "a sidecar", init: []v1.Container{restartsAllAfter42(sidecar("s")), init}, mains: []v1.Container{main}, looks: []look{
			{obs: list{at("s", observed.Running, 0, 0), at("i", observed.Running, 0, 0)}, want: map[string]string{"s": runs, "i": runs, "m": waits}, is: v1.PodPending},
			// Killed, the init container has not failed.
			{all: true, obs: list{at("s", observed.Exited, 42, 0), at("i", observed.Exited, 137, 0)}, want: map[string]string{"s": triggered, "i": killed, "m": waits}, is: v1.PodPending},
			{all: true, want: map[string]string{"s": taken, "i": taken, "m": waits}, is: v1.PodPending},
			{obs: list{at("s", observed.Running, 0, 1)}, want: map[string]string{"s": runsAgain, "i": taken, "m": waits}, is: v1.PodPending},
		}},
		{name: "containers that wait are left alone", mains: []v1.Container{plain, ctrl}, looks: []look{
			{obs: list{at("m", observed.Exited, 42, 0)}, want: map[string]string{"a": creates, "m": triggered}, is: v1.PodPending},
			{all: true, want: map[string]string{"a": creates, "m": takenPlain}, is: v1.PodPending},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := podOf(never, tc.init)
			p.Spec.Containers = tc.mains
			var prev *v1.PodStatus
			for i, l := range tc.looks {
				st := Of(Input{Pod: p, Previous: prev, RestartAll: l.all, Now: now, Observed: &observed.Pod{
					Sandboxes: []observed.Sandbox{{ID: "s", State: observed.Running}}, Containers: l.obs,
				}})
				for _, s := range append(st.InitContainerStatuses, st.ContainerStatuses...) {
					if got := brief(s); got != l.want[s.Name] {
						t.Errorf("look %d, container %s:\ngot  %s\nwant %s", i, s.Name, got, l.want[s.Name])
					}
				}
				if st.Phase != l.is {
					t.Errorf("look %d: phase %s, want %s", i, st.Phase, l.is)
				}
				c := condition(st, v1.AllContainersRestarting)
				want := said{v1.ConditionFalse, "RestartAllContainersNotRequired", "No container of the pod has required all of them to restart"}
				switch {
				case l.all, l.goesOn:
					want = said{v1.ConditionTrue, "RestartAllContainersStarted", c.Message}
					trigger := slices.ContainsFunc(l.obs, func(o observed.Container) bool { return o.Code() == 42 })
					if named := strings.Contains(c.Message, "ended with exit code 42"); c.Message == "" || named != trigger {
						t.Errorf("look %d: message %q; does it name the trigger: %v", i, c.Message, trigger)
					}
				case prev != nil && slices.ContainsFunc(tc.looks[:i], func(l look) bool { return l.all }):
					want = said{v1.ConditionFalse, "RestartAllContainersCompleted", "All containers of the pod were removed for a restart"}
				}
				if saidBy(c) != want {
					t.Errorf("look %d: %+v, want %+v", i, c, want)
				}
				prev = &st
			}
		})
	}
}

// Once a pod is to end, nothing of it comes back.
func TestNoRestartOfAllAtTheEnd(t *testing.T) {
	p := podOf(never, nil)
	p.Spec.Containers = []v1.Container{restartsAllAfter42(v1.Container{Name: "c", Image: "i"})}
	in := Input{Pod: p, RestartAll: true, Previous: was(running("c"), "1", 2), Now: now}
	const lost = "waiting ContainerCreating, last terminated 137 ContainerStatusUnknown, restarts "
	check := func(what, want string, in Input) {
		t.Helper()
		st := Of(in)
		if got := brief(st.ContainerStatuses[0]); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
		if c := condition(st, v1.AllContainersRestarting); c.Status != v1.ConditionFalse {
			t.Errorf("%s: %+v", what, c)
		}
	}
	over := in
	over.Terminal = true
	check("nothing is started any more", lost+"3", over)
	gone := in
	gone.Pod = p.DeepCopy()
	gone.Pod.DeletionTimestamp = &metav1.Time{Time: now}
	check("deleted", lost+"2", gone)
	failed := in
	failed.Previous = &v1.PodStatus{Phase: v1.PodFailed}
	check("failed", "waiting ContainerCreating, last none, restarts 0", failed)
}

func TestRestartAllConditionNeedsARule(t *testing.T) {
	p := podOf(always, nil, "c")
	p.Status.Conditions = []v1.PodCondition{{Type: v1.AllContainersRestarting, Status: v1.ConditionTrue}}
	if c := condition(Of(Input{Pod: p, RestartAll: true, Now: now}), v1.AllContainersRestarting); c.Type != "" {
		t.Errorf("a pod without such a rule has %+v", c)
	}
}

// A debugging container is no part of what is restarted.
func TestRestartAllLeavesEphemeralContainers(t *testing.T) {
	p := podOf(never, nil, "c")
	p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "d", Image: "i"}}}
	prev := &v1.PodStatus{EphemeralContainerStatuses: []v1.ContainerStatus{exited("d", 3)}}
	st := Of(Input{Pod: p, RestartAll: true, Previous: prev, Now: now})
	if got, want := brief(st.EphemeralContainerStatuses[0]), "terminated 3 , last none, restarts 0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

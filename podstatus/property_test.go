package podstatus

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
)

// life is a pod that all sorts of things happen to.
type life struct {
	*rand.Rand
	pod *v1.Pod
	obs *observed.Pod
	at  time.Time
	n   int // instances so far
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func newLife(r *rand.Rand) *life {
	l := &life{Rand: r, obs: &observed.Pod{UID: "u"}, at: now}
	var init []v1.Container
	for i := range r.IntN(3) {
		c := v1.Container{Name: fmt.Sprint("i", i)}
		if r.IntN(2) == 0 {
			c = sidecar(c.Name)
		}
		init = append(init, c)
	}
	l.pod = podOf(pick(r, always, onFailure, never), init, []string{"a", "b", "c"}[:1+r.IntN(3)]...)
	for i := range l.pod.Spec.Containers {
		if r.IntN(4) == 0 {
			p := pick(r, v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyOnFailure)
			l.pod.Spec.Containers[i].RestartPolicy = &p
		}
		if r.IntN(4) == 0 {
			l.pod.Spec.Containers[i] = restartsAllAfter42(l.pod.Spec.Containers[i])
		}
		if r.IntN(3) == 0 {
			l.pod.Spec.Containers[i].ReadinessProbe = &v1.Probe{}
			l.pod.Spec.Containers[i].StartupProbe = &v1.Probe{}
		}
	}
	if r.IntN(3) == 0 {
		l.pod.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "gate"}}
	}
	if r.IntN(5) == 0 {
		l.pod.Annotations = map[string]string{podmeta.AnnotationSource: "file"}
	}
	return l
}

// step changes something of what the runtime shows, as runtimes do: instances
// come as created, run and end, and may be lost.
func (l *life) step() {
	l.at = l.at.Add(time.Duration(l.IntN(3000)) * time.Millisecond)
	specs := slices.Concat(l.pod.Spec.InitContainers, l.pod.Spec.Containers)
	name := specs[l.IntN(len(specs))].Name
	obs := &observed.Pod{UID: "u", Sandboxes: l.obs.Sandboxes, Containers: slices.Clone(l.obs.Containers)}
	l.obs = obs
	i := slices.IndexFunc(obs.Containers, func(c observed.Container) bool { return c.Name == name })
	switch {
	case l.IntN(8) == 0:
		obs.Sandboxes = []observed.Sandbox{{ID: fmt.Sprint("s", l.n), State: pick(l.Rand, observed.Running, observed.Exited), IPs: []string{"10.0.0.1"}}}
	case l.IntN(12) == 0:
		l.pod = l.pod.DeepCopy()
		l.pod.Generation++
		l.pod.Status.Conditions = []v1.PodCondition{{Type: "gate", Status: pick(l.Rand, v1.ConditionTrue, v1.ConditionFalse)}}
	case i < 0 || obs.Containers[i].State == observed.Exited && l.IntN(2) == 0:
		l.n++
		c := observed.Container{ID: fmt.Sprint(l.n), Name: name, State: observed.Created, CreatedAt: l.at, RestartCount: int32(l.IntN(3))}
		obs.Containers = slices.Insert(obs.Containers, 0, c)
	case l.IntN(6) == 0:
		obs.Containers = slices.Delete(obs.Containers, i, i+1)
	case obs.Containers[i].State == observed.Created:
		obs.Containers[i].State, obs.Containers[i].StartedAt = observed.Running, l.at
	case obs.Containers[i].State == observed.Running:
		obs.Containers[i].State, obs.Containers[i].FinishedAt = pick(l.Rand, observed.Exited, observed.Exited, observed.Unknown), l.at
		obs.Containers[i].ExitCode = new(pick[int32](l.Rand, 0, 1, 42, 137))
	case obs.Containers[i].State == observed.Unknown:
		obs.Containers[i].State, obs.Containers[i].ExitCode, obs.Containers[i].FinishedAt = observed.Exited, new(int32(137)), l.at
	}
}

func (l *life) input(prev *v1.PodStatus) Input {
	ready, started := l.IntN(2) == 0, l.IntN(4) != 0
	in := Input{
		Pod: l.pod, Observed: l.obs, Previous: prev, Terminal: l.IntN(20) == 0, SandboxNotReady: []string{"", "", "", "no pod sandbox exists"}[l.IntN(4)],
		HostIPs: []string{"192.0.2.1"}, Now: l.at,
		Ready: func(string) bool { return ready }, Started: func(string) bool { return started },
	}
	if l.IntN(4) == 0 {
		in.Resize = []v1.PodCondition{{Type: v1.PodResizePending, Status: v1.ConditionTrue}, {Type: v1.PodResizeInProgress, Status: v1.ConditionTrue}}[l.IntN(2):]
	}
	in.RestartAll = podmeta.CanRestartAll(l.pod) && l.IntN(3) == 0
	if l.IntN(4) == 0 {
		in.StartErrors = map[string]podlife.Cause{l.pod.Spec.Containers[0].Name: {Reason: "CrashLoopBackOff"}}
	}
	return in
}

func TestWhateverHappens(t *testing.T) {
	for seed := range uint64(80) {
		l := newLife(rand.New(rand.NewPCG(seed, 1)))
		var prev *v1.PodStatus
		for step := range 40 {
			l.step()
			in := l.input(prev)
			pod, obs := in.Pod.DeepCopy(), *in.Observed
			obs.Containers = slices.Clone(obs.Containers)
			before := prev.DeepCopy()
			st := Of(in)
			for _, wrong := range slices.Concat(wrongOf(l.pod, &st), wrongAfter(l.pod, before, &st)) {
				t.Errorf("seed %d step %d: %s", seed, step, wrong)
			}
			if !reflect.DeepEqual(st, Of(in)) {
				t.Errorf("seed %d step %d: two answers to one question", seed, step)
			}
			if !reflect.DeepEqual(pod, in.Pod) || !reflect.DeepEqual(&obs, in.Observed) || !reflect.DeepEqual(before, prev) {
				t.Errorf("seed %d step %d: what was handed in has changed", seed, step)
			}
			if t.Failed() {
				return
			}
			prev = &st
		}
	}
}

// wrongOf says what no status of the pod may be.
func wrongOf(pod *v1.Pod, st *v1.PodStatus) (wrong []string) {
	phases := []v1.PodPhase{v1.PodPending, v1.PodRunning, v1.PodSucceeded, v1.PodFailed, v1.PodUnknown}
	if !slices.Contains(phases, st.Phase) {
		wrong = append(wrong, fmt.Sprintf("phase %q", st.Phase))
	}
	count := map[v1.PodConditionType]int{}
	for _, c := range st.Conditions {
		count[c.Type]++
	}
	for _, typ := range []v1.PodConditionType{v1.PodScheduled, v1.PodReady, v1.PodInitialized, v1.ContainersReady, v1.PodReadyToStartContainers} {
		if count[typ] != 1 {
			wrong = append(wrong, fmt.Sprintf("%d conditions %s", count[typ], typ))
		}
	}
	if resized := count[v1.PodResizePending] + count[v1.PodResizeInProgress]; resized > 2 || resized > 0 && podmeta.IsTerminal(st.Phase) {
		wrong = append(wrong, fmt.Sprintf("%d conditions of a resize in phase %s", resized, st.Phase))
	}
	if has := count[v1.AllContainersRestarting] == 1; has != podmeta.CanRestartAll(pod) {
		wrong = append(wrong, fmt.Sprintf("%d conditions %s", count[v1.AllContainersRestarting], v1.AllContainersRestarting))
	}
	is := func(typ v1.PodConditionType) bool { return condition(*st, typ).Status == v1.ConditionTrue }
	if is(v1.PodReady) && !is(v1.ContainersReady) {
		wrong = append(wrong, "Ready without ContainersReady")
	}
	if is(v1.ContainersReady) && (podmeta.IsTerminal(st.Phase) || !is(v1.PodInitialized)) {
		wrong = append(wrong, fmt.Sprintf("ContainersReady in phase %s, initialized %v", st.Phase, is(v1.PodInitialized)))
	}
	return append(wrong, wrongContainers(pod, st)...)
}

func wrongContainers(pod *v1.Pod, st *v1.PodStatus) (wrong []string) {
	for g, specs := range map[Group][]v1.Container{InitContainers: pod.Spec.InitContainers, RegularContainers: pod.Spec.Containers} {
		_, statuses := g.of(pod, st)
		if len(statuses) != len(specs) {
			return append(wrong, fmt.Sprintf("%d statuses of %d containers", len(statuses), len(specs)))
		}
		for i, s := range statuses {
			states := 0
			for _, is := range []bool{s.State.Running != nil, s.State.Terminated != nil, s.State.Waiting != nil} {
				if is {
					states++
				}
			}
			init := g == InitContainers && !podmeta.IsSidecar(&specs[i])
			switch {
			case s.Name != specs[i].Name:
				wrong = append(wrong, fmt.Sprintf("%s in the place of %s", s.Name, specs[i].Name))
			case states != 1:
				wrong = append(wrong, fmt.Sprintf("%s is in %d states", s.Name, states))
			case !init && s.Ready && (s.State.Running == nil || !*s.Started):
				wrong = append(wrong, fmt.Sprintf("%s is ready: %s", s.Name, brief(s)))
			case !init && !s.Ready && condition(*st, v1.ContainersReady).Status == v1.ConditionTrue:
				wrong = append(wrong, fmt.Sprintf("%s is unready in a pod that is ready", s.Name))
			}
		}
	}
	return wrong
}

// wrongAfter says what may not become of old.
func wrongAfter(pod *v1.Pod, old, st *v1.PodStatus) (wrong []string) {
	if old == nil {
		return nil
	}
	if podmeta.IsTerminal(old.Phase) && st.Phase != old.Phase {
		wrong = append(wrong, fmt.Sprintf("phase %s after %s", st.Phase, old.Phase))
	}
	if !st.StartTime.Equal(old.StartTime) {
		wrong = append(wrong, "another start time")
	}
	for _, c := range st.Conditions {
		was := condition(*old, c.Type)
		if c.Type == "gate" || was.Type == "" {
			continue
		}
		if was.Status == c.Status && !was.LastTransitionTime.Equal(&c.LastTransitionTime) || c.LastTransitionTime.Before(&was.LastTransitionTime) {
			wrong = append(wrong, fmt.Sprintf("%s from %+v to %+v", c.Type, was, c))
		}
	}
	if a, b := condition(*old, v1.PodInitialized), condition(*st, v1.PodInitialized); a.Status == v1.ConditionTrue && b.Status != v1.ConditionTrue {
		wrong = append(wrong, "no longer initialized")
	}
	for g := range map[Group]bool{InitContainers: true, RegularContainers: true} {
		_, was := g.of(pod, old)
		_, is := g.of(pod, st)
		for i := range is {
			if is[i].RestartCount < was[i].RestartCount {
				wrong = append(wrong, fmt.Sprintf("%s was restarted %d times, now %d", is[i].Name, was[i].RestartCount, is[i].RestartCount))
			}
			if was[i].LastTerminationState.Terminated != nil && is[i].LastTerminationState.Terminated == nil {
				wrong = append(wrong, is[i].Name+" forgot its last end")
			}
			if was[i].State.Terminated != nil && is[i].State.Running != nil && is[i].LastTerminationState.Terminated == nil {
				wrong = append(wrong, is[i].Name+" runs after an end, and knows of none")
			}
		}
	}
	return wrong
}

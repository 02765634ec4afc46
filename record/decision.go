package record

import (
	"fmt"
	"hash/fnv"
	"reflect"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
)

// Decision is one decision of [podlife.Decide] with all its inputs.
type Decision struct {
	// Inputs is a checksum of Input: equal inputs have equal checksums.
	Inputs string `json:"inputs" is:"id"`
	Input  Input  `json:"input"`
	Result Result `json:"result"`
	// Shadow reports that another agent runs the pod: Result is what an agent of this module would do.
	Shadow bool `json:"shadow,omitempty"`
}

// Input has the values of a [podlife.Knowledge].
type Input struct {
	Policy      string     `json:"policy,omitempty" is:"word"`
	HostNetwork bool       `json:"hostNetwork,omitempty"`
	Deleting    bool       `json:"deleting,omitempty"`
	Init        []Spec     `json:"init,omitempty"`
	Regular     []Spec     `json:"regular,omitempty"`
	Sandboxes   []Sandbox  `json:"sandboxes,omitempty"`
	Runs        []Observed `json:"runs,omitempty"`
}

// Spec has the fields of a container's spec on which the decision depends.
type Spec struct {
	Name     string `json:"name" is:"name"`
	Policy   string `json:"policy,omitempty" is:"word"`
	Rules    []Rule `json:"rules,omitempty"`
	Startup  bool   `json:"startup,omitempty"`  // the container has a startup probe
	Liveness bool   `json:"liveness,omitempty"` // the container has a liveness probe
	Waits    []Wait `json:"waits,omitempty"`
}

// Wait is the time before which a container must not be started, and the reason. ID is the
// instance after which it waits; "" if there is none.
type Wait struct {
	ID    string       `json:"id,omitempty" is:"id"`
	Until time.Time    `json:"until"`
	Why   podlife.Kind `json:"why,omitempty" is:"word"`
}

// Rule is a restart rule of a container.
type Rule struct {
	Action   string  `json:"action" is:"word"`
	Operator string  `json:"operator,omitempty" is:"word"`
	Codes    []int32 `json:"codes,omitempty"`
}

// Sandbox is a sandbox in the runtime.
type Sandbox struct {
	ID          string `json:"id" is:"id"`
	State       string `json:"state" is:"word"`
	Attempt     uint32 `json:"attempt,omitempty"`
	HostNetwork bool   `json:"hostNetwork,omitempty"`
	Network     bool   `json:"network,omitempty"` // the runtime reported network information
	Addresses   int    `json:"addresses,omitempty"`
}

// Observed is a container in the runtime, with the answers about it.
type Observed struct {
	ID       string `json:"id" is:"id"`
	Name     string `json:"name" is:"name"`
	Sandbox  string `json:"sandbox,omitempty" is:"id"`
	State    string `json:"state" is:"word"`
	Attempt  uint32 `json:"attempt,omitempty"`
	ExitCode *int32 `json:"exitCode,omitempty"`
	Reason   string `json:"reason,omitempty" is:"word"`
	Started  string `json:"started,omitempty" is:"word"` // yes or no; maybe is ""
	Alive    string `json:"alive,omitempty" is:"word"`
	Changed  bool   `json:"changed,omitempty"`
	Resized  bool   `json:"resized,omitempty"`
}

// Result is a [podlife.Decision].
type Result struct {
	Over    bool     `json:"over,omitempty"`
	Reset   []string `json:"reset,omitempty" is:"id"`
	Lack    string   `json:"lack,omitempty" is:"word"` // why there is no usable sandbox
	Make    bool     `json:"make,omitempty"`
	Sandbox string   `json:"sandbox,omitempty" is:"id"`
	Attempt uint32   `json:"attempt,omitempty"`
	Init    []Act    `json:"init,omitempty"`
	Regular []Act    `json:"regular,omitempty"`
	Surplus []string `json:"surplus,omitempty" is:"id"`
}

// Act is a [podlife.Act] about a container.
type Act struct {
	Name  string       `json:"name" is:"name"`
	ID    string       `json:"id,omitempty" is:"id"` // of its newest instance
	Do    string       `json:"do" is:"word"`
	Why   podlife.Kind `json:"why,omitempty" is:"word"`
	Until time.Time    `json:"until,omitzero"`
	Again bool         `json:"again,omitempty"`
}

// The words for podlife.Do.
var doWords = map[podlife.Do]string{
	podlife.NotYet: "not yet", podlife.Keep: "keep", podlife.Start: "start", podlife.Wait: "wait", podlife.End: "end", podlife.Never: "never",
}

// idle reports a decision that changes nothing: all containers stay as they are.
func (r *Result) idle() bool {
	stays := func(a Act) bool { return a.Do == "keep" || a.Do == "never" || a.Do == "not yet" }
	return !r.Over && !r.Make && len(r.Reset)+len(r.Surplus) == 0 &&
		!slices.ContainsFunc(r.Init, func(a Act) bool { return !stays(a) }) && !slices.ContainsFunc(r.Regular, func(a Act) bool { return !stays(a) })
}

// Decide is [podlife.Decide] with a record of the decision. Each function of k is called as often as
// podlife.Decide calls it.
func Decide(k podlife.Knowledge) (podlife.Decision, *Decision) {
	changed, resized, waits := map[string]bool{}, map[string]bool{}, map[string][]Wait{}
	asked := k
	if k.Changed != nil {
		asked.Changed = func(c *v1.Container, o *observed.Container) bool {
			yes := k.Changed(c, o)
			changed[ShortID(o.ID)] = yes
			return yes
		}
	}
	if k.Resized != nil {
		asked.Resized = func(c *v1.Container, o *observed.Container) bool {
			yes := k.Resized(c, o)
			resized[ShortID(o.ID)] = yes
			return yes
		}
	}
	if k.Waits != nil {
		asked.Waits = func(c *v1.Container, o *observed.Container) (time.Time, podlife.Kind) {
			until, why := k.Waits(c, o)
			if !until.IsZero() {
				w := Wait{Until: until.UTC().Round(0), Why: why}
				if o != nil {
					w.ID = ShortID(o.ID)
				}
				waits[c.Name] = append(waits[c.Name], w)
			}
			return until, why
		}
	}
	d := podlife.Decide(asked)
	in := input(k)
	for i := range in.Runs {
		in.Runs[i].Changed, in.Runs[i].Resized = changed[in.Runs[i].ID], resized[in.Runs[i].ID]
	}
	for _, list := range [][]Spec{in.Init, in.Regular} {
		for i := range list {
			list[i].Waits = waits[list[i].Name]
		}
	}
	return d, &Decision{Inputs: in.checksum(), Input: in, Result: result(k.Pod, k.Runtime, d)}
}

// input returns the part of the input that needs no call of the functions of k that may be costly.
func input(k podlife.Knowledge) Input {
	obs := k.Runtime.Settled()
	in := Input{Policy: string(k.Pod.Spec.RestartPolicy), HostNetwork: k.Pod.Spec.HostNetwork, Deleting: k.Pod.DeletionTimestamp != nil}
	if obs != nil {
		for i := range obs.Sandboxes {
			s := &obs.Sandboxes[i]
			in.Sandboxes = append(in.Sandboxes, Sandbox{ID: ShortID(s.ID), State: s.State.String(), Attempt: s.Attempt, HostNetwork: s.HostNetwork, Network: s.HasNetwork, Addresses: len(s.IPs)})
		}
		for i := range obs.Containers {
			c := &obs.Containers[i]
			in.Runs = append(in.Runs, Observed{
				ID: ShortID(c.ID), Name: c.Name, Sandbox: ShortID(c.SandboxID), State: c.State.String(), Attempt: c.Attempt, ExitCode: c.ExitCode, Reason: Reason(c.Reason),
				Started: answer(k.Started, c.ID), Alive: answer(k.Alive, c.ID),
			})
		}
	}
	specs := func(list []v1.Container) []Spec {
		var out []Spec
		for i := range list {
			c := &list[i]
			s := Spec{Name: c.Name, Startup: c.StartupProbe != nil, Liveness: c.LivenessProbe != nil}
			if c.RestartPolicy != nil {
				s.Policy = string(*c.RestartPolicy)
			}
			for _, r := range c.RestartPolicyRules {
				rule := Rule{Action: string(r.Action)}
				if r.ExitCodes != nil {
					rule.Operator, rule.Codes = string(r.ExitCodes.Operator), r.ExitCodes.Values
				}
				s.Rules = append(s.Rules, rule)
			}
			out = append(out, s)
		}
		return out
	}
	in.Init, in.Regular = specs(k.Pod.Spec.InitContainers), specs(k.Pod.Spec.Containers)
	return in
}

// answer returns the word for an answer about a container; "" for maybe.
func answer(ask func(string) observed.Answer, id string) string {
	if ask == nil {
		return ""
	}
	if a := ask(id); a != observed.Maybe {
		return a.String()
	}
	return ""
}

// checksum returns a short checksum of the input.
func (in *Input) checksum() string {
	h := fnv.New64a()
	_, _ = h.Write(encode(in))
	return fmt.Sprintf("%016x", h.Sum64())
}

func result(pod *v1.Pod, obs *observed.Pod, d podlife.Decision) Result {
	r := Result{Over: d.Over, Lack: d.Sandbox.Lack, Make: d.Sandbox.Make, Sandbox: ShortID(d.Sandbox.ID), Attempt: d.Sandbox.Attempt}
	acts := func(list []v1.Container, acts []podlife.Act) []Act {
		var out []Act
		for i := range min(len(list), len(acts)) {
			a := Act{Name: list[i].Name, Do: doWords[acts[i].Do], Why: acts[i].Why, Again: acts[i].Again}
			if !acts[i].Until.IsZero() {
				a.Until = acts[i].Until.UTC().Round(0)
			}
			if o := obs.Newest(a.Name); o != nil {
				a.ID = ShortID(o.ID)
			}
			out = append(out, a)
		}
		return out
	}
	r.Init, r.Regular = acts(pod.Spec.InitContainers, d.Init), acts(pod.Spec.Containers, d.Regular)
	for _, id := range d.Reset {
		r.Reset = append(r.Reset, ShortID(id))
	}
	for _, o := range d.Surplus {
		r.Surplus = append(r.Surplus, ShortID(o.ID))
	}
	return r
}

// Again repeats the decision with the recorded input and the current code.
func (f *Decision) Again() Result {
	k := f.Input.Knowledge()
	return result(k.Pod, k.Runtime, podlife.Decide(k))
}

// Differs returns the differences between the recorded result and other, a line each; none if they
// are equal.
func (f *Decision) Differs(other Result) []string {
	var out []string
	line := func(what string, was, is any) {
		if !reflect.DeepEqual(was, is) {
			out = append(out, fmt.Sprintf("%s: was %v, is %v", what, was, is))
		}
	}
	r := &f.Result
	line("the pod is over", r.Over, other.Over)
	line("reset", strings.Join(r.Reset, " "), strings.Join(other.Reset, " "))
	line("lack of a sandbox", r.Lack, other.Lack)
	line("a sandbox is made", r.Make, other.Make)
	line("attempt", r.Attempt, other.Attempt)
	line("surplus", strings.Join(r.Surplus, " "), strings.Join(other.Surplus, " "))
	for _, l := range []struct{ was, is []Act }{{r.Init, other.Init}, {r.Regular, other.Regular}} {
		for i := range max(len(l.was), len(l.is)) {
			var was, is Act
			if i < len(l.was) {
				was = l.was[i]
			}
			if i < len(l.is) {
				is = l.is[i]
			}
			line("container "+was.Name, was.String(), is.String())
		}
	}
	return out
}

// String returns the act in words, such as "end (LivenessProbe), again".
func (a Act) String() string {
	s := a.Do
	if a.Why != "" {
		s += " (" + string(a.Why) + ")"
	}
	if !a.Until.IsZero() {
		s += " until " + a.Until.Format(time.RFC3339)
	}
	if a.Again {
		s += ", again"
	}
	return s
}

// Knowledge returns the input as a [podlife.Knowledge].
func (in *Input) Knowledge() podlife.Knowledge {
	pod := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicy(in.Policy), HostNetwork: in.HostNetwork}}
	if in.Deleting {
		pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	}
	waits := map[string][]Wait{}
	containers := func(list []Spec) []v1.Container {
		var out []v1.Container
		for _, s := range list {
			waits[s.Name] = s.Waits
			c := v1.Container{Name: s.Name}
			if s.Policy != "" {
				p := v1.ContainerRestartPolicy(s.Policy)
				c.RestartPolicy = &p
			}
			for _, r := range s.Rules {
				rule := v1.ContainerRestartRule{Action: v1.ContainerRestartRuleAction(r.Action)}
				if r.Operator != "" {
					rule.ExitCodes = &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOperator(r.Operator), Values: r.Codes}
				}
				c.RestartPolicyRules = append(c.RestartPolicyRules, rule)
			}
			if s.Startup {
				c.StartupProbe = &v1.Probe{}
			}
			if s.Liveness {
				c.LivenessProbe = &v1.Probe{}
			}
			out = append(out, c)
		}
		return out
	}
	pod.Spec.InitContainers, pod.Spec.Containers = containers(in.Init), containers(in.Regular)
	byID := map[string]Observed{}
	obs := &observed.Pod{}
	for _, s := range in.Sandboxes {
		obs.Sandboxes = append(obs.Sandboxes, observed.Sandbox{
			ID: s.ID, State: stateOf(s.State), Attempt: s.Attempt, HostNetwork: s.HostNetwork, HasNetwork: s.Network, IPs: make([]string, max(0, min(s.Addresses, maxAddresses))),
		})
	}
	for _, c := range in.Runs {
		byID[c.ID] = c
		obs.Containers = append(obs.Containers, observed.Container{
			ID: c.ID, Name: c.Name, SandboxID: c.Sandbox, State: stateOf(c.State), Attempt: c.Attempt, ExitCode: c.ExitCode, Reason: c.Reason,
		})
	}
	return podlife.Knowledge{
		Pod: pod, Runtime: obs,
		Started: func(id string) observed.Answer { return answerOf(byID[id].Started) },
		Alive:   func(id string) observed.Answer { return answerOf(byID[id].Alive) },
		Changed: func(_ *v1.Container, o *observed.Container) bool { return byID[o.ID].Changed },
		Resized: func(_ *v1.Container, o *observed.Container) bool { return byID[o.ID].Resized },
		Waits: func(c *v1.Container, o *observed.Container) (time.Time, podlife.Kind) {
			for _, w := range waits[c.Name] {
				if o == nil && w.ID == "" || o != nil && w.ID == o.ID {
					return w.Until, w.Why
				}
			}
			return time.Time{}, ""
		},
	}
}

// maxAddresses limits the number of addresses of a sandbox in a record. The exact number does not
// affect the decision.
const maxAddresses = 16

func stateOf(word string) observed.State {
	for s := observed.Unknown; s <= observed.Exited; s++ {
		if s.String() == word {
			return s
		}
	}
	return observed.Unknown
}

func answerOf(word string) observed.Answer {
	switch word {
	case "yes":
		return observed.Yes
	case "no":
		return observed.No
	default:
		return observed.Maybe
	}
}

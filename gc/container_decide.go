package gc

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
)

// The decisions, as pure functions of lists: no runtime, no disk and no clock is asked in
// this file. They differ from the kubelet's in three points: the age of a container counts
// from its end and not from its creation, the newest instance of a pod that lives always
// stays, and so does one that such a pod has not started yet.

// Container is a container instance, in any state.
type Container struct {
	ID      string
	Pod     types.UID
	Name    string
	Sandbox string // its ID
	// Unknown counts as dead, but is stopped first; see Verdict.StopFirst.
	State observed.State
	// Attempt orders the instances of one container of a pod; of equal ones, as
	// where a runtime shows none, CreatedAt does.
	Attempt uint32
	// FinishedAt, if known, is what a dead one's age counts from; else it is
	// CreatedAt.
	CreatedAt, FinishedAt time.Time
	// LogPath is its log, if that is known. The Runtime may use it to remove the logs; no
	// decision depends on it.
	LogPath string
}

// Sandbox is a pod's sandbox. A pod has several if an older one died and was replaced.
type Sandbox struct {
	ID  string
	Pod types.UID
	// Ready is the CRI's SANDBOX_READY: it may be in use without any container.
	Ready     bool
	Attempt   uint32 // as of a Container
	CreatedAt time.Time
}

// PodState says how much of a pod is still needed.
type PodState uint8

const (
	// Live pods run or may be restarted. Their status is computed from their
	// containers.
	Live PodState = iota
	// Terminated pods are not deleted yet, but no container of them runs again.
	Terminated
	// Deleted pods are gone or unknown.
	Deleted
)

// ContainerPolicy bounds how many dead containers stay.
type ContainerPolicy struct {
	// MinAge is how long a container stays at least after its end.
	MinAge time.Duration
	// MaxPerContainer is how many dead instances of each container of a pod
	// stay, MaxContainers how many dead instances in all; below 0 any number.
	MaxPerContainer, MaxContainers int
}

// DefaultContainerPolicy returns the kubelet's: one per container, any number in all.
func DefaultContainerPolicy() ContainerPolicy {
	return ContainerPolicy{MaxPerContainer: 1, MaxContainers: -1}
}

// validate accepts any limits: all those below 0 mean the same.
func (p ContainerPolicy) validate() error {
	if p.MinAge < 0 {
		return fmt.Errorf("ContainerConfig.Policy.MinAge %v: want 0 or more", p.MinAge)
	}
	return nil
}

// fate is what is to become of a container, or why it stays.
type fate uint8

// The fates.
const (
	// fateRemove is the zero value, and sorts before all others: decideContainers relies on
	// that.
	fateRemove fate = iota
	fateRunning
	fateStarting // made and not started yet, of a pod that lives
	fateYoung    // ended less than Policy.MinAge ago
	fateNeeded   // for the status and the logs of a pod that lives
	fateWithin   // the limits of Policy
)

// String is the fate in words.
func (f fate) String() string {
	names := [...]string{"remove", "running", "starting", "young", "needed", "within limits"}
	if int(f) >= len(names) {
		return "unknown"
	}
	return names[f]
}

// containerVerdict is a container with its fate.
type containerVerdict struct {
	Container
	Fate fate
	// StopFirst reports one to be removed that it may run after all.
	StopFirst bool

	// made is CreatedAt, or that of an earlier instance if it is later: it orders
	// instances of different containers, and contradicts no attempt.
	made time.Time
}

// situation is what decisions depend on beside containers and sandboxes.
type situation struct {
	// Pods reports a pod; nil is Live for all.
	Pods func(types.UID) PodState
	// All has the limits disregarded for pods that are over: they lose all.
	All bool
	// Now is compared with the runtime's times, which are of the same machine's clock.
	Now time.Time
}

// pod returns the state of a pod; Live for all if Pods is nil.
func (s *situation) pod(uid types.UID) PodState {
	if s.Pods == nil {
		return Live
	}
	return s.Pods(uid)
}

// decideContainers judges containers. Those to be removed come first, the
// oldest first. all is not changed.
func decideContainers(p ContainerPolicy, s situation, all []Container) []containerVerdict {
	type unit struct {
		pod  types.UID
		name string
	}
	out := make([]containerVerdict, len(all))
	units := map[unit][]*containerVerdict{}
	for i, c := range all {
		v := &out[i]
		v.Container, v.StopFirst = c, c.State.Runs() == observed.Maybe
		// Not every runtime reports the end. An end before the creation, as after a clock
		// was set back, does not count.
		died := c.CreatedAt
		if c.FinishedAt.After(died) {
			died = c.FinishedAt
		}
		switch {
		case c.State == observed.Running:
			v.Fate = fateRunning
		// Nothing starts a container of a pod that is over: such a one is dead, and goes on
		// to the limits.
		case c.State == observed.Created && s.pod(c.Pod) == Live:
			v.Fate = fateStarting
		case p.MinAge > 0 && s.Now.Sub(died) < p.MinAge: // with 0 whatever the clock says
			v.Fate = fateYoung
		default:
			v.Fate = fateWithin // until a limit says otherwise
			u := unit{c.Pod, c.Name}
			units[u] = append(units[u], v)
		}
	}
	for u, vs := range units {
		// made never falls from one attempt to the next, whatever the clock did: from the
		// oldest to the newest it is the highest time so far.
		slices.SortFunc(vs, byAttempt)
		made := time.Time{}
		for _, v := range slices.Backward(vs) {
			if v.CreatedAt.After(made) {
				made = v.CreatedAt
			}
			v.made = made
		}
		switch state := s.pod(u.pod); {
		// Nobody asks for the status or the logs of such a pod again. A terminated one
		// without All keeps what the limits allow.
		case state == Deleted, state == Terminated && s.All:
			vs = keep(vs, 0)
		case state == Live: // beside one that runs, too: for its last state and logs
			vs[0].Fate = fateNeeded
		}
		// The needed instance, which is the newest, is one of those that may stay.
		if p.MaxPerContainer >= 0 {
			vs = keep(vs, p.MaxPerContainer)
		}
		if units[u] = vs; len(vs) == 0 {
			// A container without any instance left takes no part in the limit over all.
			delete(units, u)
		}
	}
	if p.MaxContainers >= 0 {
		total := 0
		for _, vs := range units {
			total += len(vs)
		}
		if total > p.MaxContainers {
			// As in the kubelet: the same number for every container first, so that one
			// which crashes often does not push out the others' last instances. Only if one
			// for each is still too much do the oldest of all go.
			each := max(1, p.MaxContainers/len(units))
			var left []*containerVerdict
			for _, vs := range units {
				left = append(left, keep(vs, each)...)
			}
			slices.SortFunc(left, newestFirst)
			// The verdicts are changed through their pointers; what is left is of no use
			// here.
			keep(left, p.MaxContainers)
		}
	}
	// Those that are in no unit have no order of attempts.
	for i := range out {
		if out[i].made.IsZero() {
			out[i].made = out[i].CreatedAt
		}
	}
	slices.SortStableFunc(out, func(a, b containerVerdict) int {
		if a.Fate != fateRemove || b.Fate != fateRemove {
			// Those that stay keep the order in which they came.
			return cmp.Compare(min(a.Fate, 1), min(b.Fate, 1))
		}
		return newestFirst(&b, &a)
	})
	return out
}

// byAttempt orders the instances of one container, the newest first. The attempt counts
// before the time, which a clock that was set back makes wrong. Running is left out: none of
// these runs.
func byAttempt(a, b *containerVerdict) int {
	instance := func(v *containerVerdict) observed.Instance {
		return observed.Instance{Attempt: v.Attempt, CreatedAt: v.CreatedAt, ID: v.ID}
	}
	return observed.NewestFirst(instance(a), instance(b))
}

// newestFirst orders those of different containers too.
func newestFirst(a, b *containerVerdict) int {
	return cmp.Or(b.made.Compare(a.made), cmp.Compare(b.Attempt, a.Attempt), strings.Compare(a.ID, b.ID))
}

// keep has all but the n newest removed, the needed ones apart, and returns
// what is left.
func keep(vs []*containerVerdict, n int) []*containerVerdict {
	// Without capacity: append must not write over vs, which the caller may still have.
	left := vs[:0:0]
	for i, v := range vs {
		if i >= n && v.Fate != fateNeeded {
			v.Fate = fateRemove
			continue
		}
		left = append(left, v)
	}
	return left
}

// decideSandboxes returns the sandboxes to be removed, the oldest first: of
// pods that are gone, or over with situation.All, all that are not ready and
// that no container refers to; of others these too, but not the newest.
func decideSandboxes(s situation, sandboxes []Sandbox, containers []Container) []Sandbox {
	// A dead container counts as well: its logs and its status are reached through the
	// sandbox.
	inhabited := make(map[string]bool, len(containers))
	for _, c := range containers {
		inhabited[c.Sandbox] = true
	}
	// The newest is found among all, also those that are ready or inhabited: beside it an
	// older one is surplus, and the pod's status is not told from it.
	newest := map[types.UID]*Sandbox{}
	for i := range sandboxes {
		sb := &sandboxes[i]
		if n := newest[sb.Pod]; n == nil || observed.NewestFirst(sb.instance(), n.instance()) < 0 {
			newest[sb.Pod] = sb
		}
	}
	var out []Sandbox
	for i := range sandboxes {
		sb := &sandboxes[i]
		if sb.Ready || inhabited[sb.ID] {
			continue
		}
		state := s.pod(sb.Pod)
		if state == Deleted || state == Terminated && s.All || newest[sb.Pod] != sb {
			out = append(out, *sb)
		}
	}
	slices.SortFunc(out, func(a, b Sandbox) int { return older(&a, &b) })
	return out
}

// instance is what sandboxes are ordered by. Where a runtime shows no attempts, one that is
// ready counts as the newest.
func (s *Sandbox) instance() observed.Instance {
	return observed.Instance{Attempt: s.Attempt, Running: s.Ready, CreatedAt: s.CreatedAt, ID: s.ID}
}

// older orders sandboxes of different pods, whose attempts cannot be compared.
func older(a, b *Sandbox) int {
	return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.ID, b.ID))
}

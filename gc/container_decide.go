package gc

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
)

// The decisions, as pure functions of lists. They differ from the kubelet's in three points: the
// age of a container counts from its end, not its creation; the newest instance of each
// container of a live pod always stays; and so do created containers of live pods.

// Container is a container instance, in any state.
type Container struct {
	ID      string
	Pod     types.UID
	Name    string
	Sandbox string // the sandbox's ID
	// State is the runtime's state. Unknown counts as dead, but the container is stopped before
	// its removal.
	State observed.State
	// Attempt orders the instances of one container of a pod. If attempts are equal, CreatedAt
	// decides.
	Attempt uint32
	// CreatedAt and FinishedAt are the runtime's times. The age of a dead container counts from
	// FinishedAt, or from CreatedAt if FinishedAt is zero.
	CreatedAt, FinishedAt time.Time
	// LogPath is the container's log, if known, for RemoveContainer.
	LogPath string
}

// Sandbox is a pod's sandbox. A pod has several if an older one died and was replaced.
type Sandbox struct {
	ID  string
	Pod types.UID
	// Ready is the CRI's SANDBOX_READY. A ready sandbox may be in use even without a container.
	Ready     bool
	Attempt   uint32 // as in Container
	CreatedAt time.Time
}

// PodState says which parts of a pod are still needed.
type PodState uint8

const (
	// Live pods run or may be restarted. Their status is computed from their
	// containers.
	Live PodState = iota
	// Terminated pods still exist, but none of their containers runs again.
	Terminated
	// Deleted pods are gone or unknown.
	Deleted
)

// ContainerPolicy limits the dead containers that are kept.
type ContainerPolicy struct {
	// MinAge is the minimum time that a container is kept after its end.
	MinAge time.Duration
	// MaxPerContainer limits the dead instances of each container of a pod. MaxContainers limits
	// the dead instances of all pods together. A negative value means no limit.
	MaxPerContainer, MaxContainers int
}

// DefaultContainerPolicy returns the kubelet's default: one dead instance per container, and no
// limit for all containers together.
func DefaultContainerPolicy() ContainerPolicy {
	return ContainerPolicy{MaxPerContainer: 1, MaxContainers: -1}
}

// validate returns an error for an invalid policy.
func (p ContainerPolicy) validate() error {
	if p.MinAge < 0 {
		return fmt.Errorf("ContainerConfig.Policy.MinAge %v: want 0 or more", p.MinAge)
	}
	return nil
}

// containerVerdict says that a container is removed, or why it stays.
type containerVerdict uint8

// The verdicts.
const (
	// containerRemove is the zero value and sorts first: decideContainers relies on both.
	containerRemove containerVerdict = iota
	containerRunning
	containerStarting // created and not started, and the pod is live
	containerYoung    // ended less than Policy.MinAge ago
	containerNeeded   // needed for the status and logs of a live pod
	containerWithin   // within the limits of Policy
)

// String returns the verdict in words.
func (v containerVerdict) String() string {
	names := [...]string{"remove", "running", "starting", "young", "needed", "within limits"}
	if int(v) >= len(names) {
		return "unknown"
	}
	return names[v]
}

// judgedContainer is a container with its verdict.
type judgedContainer struct {
	Container
	Verdict containerVerdict
	// StopFirst means that the container may still run and is stopped before its removal.
	StopFirst bool

	// made is the latest CreatedAt of this and earlier instances. It orders instances of
	// different containers without contradicting attempts.
	made time.Time
}

// situation has the input of decisions besides containers and sandboxes.
type situation struct {
	// Pods returns the state of a pod. If Pods is nil, all pods are Live.
	Pods func(types.UID) PodState
	// All ignores the limits for terminated and deleted pods: all of their containers and
	// sandboxes are removed.
	All bool
	// Now is the current time, by the same clock as the runtime's times.
	Now time.Time
}

// pod returns the state of a pod. If Pods is nil, it returns Live.
func (s *situation) pod(uid types.UID) PodState {
	if s.Pods == nil {
		return Live
	}
	return s.Pods(uid)
}

// decideContainers decides on containers. The result begins with those to remove, oldest first.
// all is not changed.
func decideContainers(p ContainerPolicy, s situation, all []Container) []judgedContainer {
	type unit struct {
		pod  types.UID
		name string
	}
	out := make([]judgedContainer, len(all))
	units := map[unit][]*judgedContainer{} // instances to which limits apply
	for i, c := range all {
		v := &out[i]
		*v = judgedContainer{Container: c, Verdict: s.verdict(p, c), StopFirst: c.State.Runs() == observed.Maybe, made: c.CreatedAt}
		if v.Verdict == containerWithin {
			u := unit{c.Pod, c.Name}
			units[u] = append(units[u], v)
		}
	}
	for u, vs := range units {
		slices.SortFunc(vs, byAttempt)
		setMade(vs)
		switch state := s.pod(u.pod); {
		// Status and logs of such a pod are not needed again.
		case state == Deleted, state == Terminated && s.All:
			vs = keep(vs, 0)
		case state == Live: // even beside a running one: for its last state and logs
			vs[0].Verdict = containerNeeded
		}
		// The newest instance, which is needed, counts towards the limit.
		if p.MaxPerContainer >= 0 {
			vs = keep(vs, p.MaxPerContainer)
		}
		units[u] = vs
	}
	if p.MaxContainers >= 0 {
		keepOfAll(slices.Collect(maps.Values(units)), p.MaxContainers)
	}
	slices.SortStableFunc(out, func(a, b judgedContainer) int {
		if a.Verdict != containerRemove || b.Verdict != containerRemove {
			// Kept containers stay in their input order.
			return cmp.Compare(min(a.Verdict, 1), min(b.Verdict, 1))
		}
		return newestFirst(&b, &a)
	})
	return out
}

// verdict returns the verdict on a container before limits apply: containerWithin, unless the
// container stays in any case.
func (s *situation) verdict(p ContainerPolicy, c Container) containerVerdict {
	// Not every runtime reports the end. An end before the creation is ignored: the clock was set
	// back.
	died := c.CreatedAt
	if c.FinishedAt.After(died) {
		died = c.FinishedAt
	}
	switch {
	case c.State == observed.Running:
		return containerRunning
	// A created container of a terminated pod is never started, so it counts as dead.
	case c.State == observed.Created && s.pod(c.Pod) == Live:
		return containerStarting
	case p.MinAge > 0 && s.Now.Sub(died) < p.MinAge: // 0 disables it, whatever the clock says
		return containerYoung
	default:
		return containerWithin
	}
}

// setMade sets made of the instances of a container, which are sorted by byAttempt. made never
// decreases from one attempt to the next, even if the clock was set back.
func setMade(vs []*judgedContainer) {
	var made time.Time
	for _, v := range slices.Backward(vs) {
		if v.CreatedAt.After(made) {
			made = v.CreatedAt
		}
		v.made = made
	}
}

// keepOfAll keeps at most n instances of all containers together, and those that are needed anyway.
// As in the kubelet, there is first the same limit for every container, so that a container that
// crashes often does not displace the last instances of others. If one for each is still too much,
// the oldest of all are removed.
func keepOfAll(units [][]*judgedContainer, n int) {
	total, containers := 0, 0
	for _, vs := range units {
		total += len(vs)
		containers += min(len(vs), 1)
	}
	if total <= n {
		return
	}
	each := max(1, n/containers)
	var left []*judgedContainer
	for _, vs := range units {
		left = append(left, keep(vs, each)...)
	}
	slices.SortFunc(left, newestFirst)
	keep(left, n)
}

// byAttempt compares instances of one container, newest first: by attempt, then by time, since
// the clock may have been set back.
func byAttempt(a, b *judgedContainer) int {
	instance := func(v *judgedContainer) observed.Instance {
		return observed.Instance{Attempt: v.Attempt, CreatedAt: v.CreatedAt, ID: v.ID}
	}
	return observed.NewestFirst(instance(a), instance(b))
}

// newestFirst compares instances of any containers, newest first.
func newestFirst(a, b *judgedContainer) int {
	return cmp.Or(b.made.Compare(a.made), cmp.Compare(b.Attempt, a.Attempt), strings.Compare(a.ID, b.ID))
}

// keep keeps the n newest containers and those that are needed anyway, and marks the others for
// removal. It returns the containers that it keeps.
func keep(vs []*judgedContainer, n int) []*judgedContainer {
	// Without capacity, so that append does not overwrite vs.
	left := vs[:0:0]
	for i, v := range vs {
		if i >= n && v.Verdict != containerNeeded {
			v.Verdict = containerRemove
			continue
		}
		left = append(left, v)
	}
	return left
}

// decideSandboxes returns the sandboxes to remove, oldest first. It keeps sandboxes that are
// ready or have a container, and the newest sandbox of each pod. But the newest sandbox is
// removed too if the pod is deleted, or if the pod is terminated and situation.All is set.
func decideSandboxes(s situation, sandboxes []Sandbox, containers []Container) []Sandbox {
	// Dead containers count too: their logs and status need the sandbox.
	inhabited := make(map[string]bool, len(containers))
	for _, c := range containers {
		inhabited[c.Sandbox] = true
	}
	// The newest of all sandboxes, including ready ones and those with containers: older ones
	// are not needed for the pod's status.
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

// instance returns the key for the order of sandboxes. Without attempts, a ready sandbox counts
// as the newest.
func (s *Sandbox) instance() observed.Instance {
	return observed.Instance{Attempt: s.Attempt, Running: s.Ready, CreatedAt: s.CreatedAt, ID: s.ID}
}

// older compares sandboxes of different pods by time.
func older(a, b *Sandbox) int {
	return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.ID, b.ID))
}

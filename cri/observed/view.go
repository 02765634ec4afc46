package observed

// Answer is the answer to a yes-or-no question. The zero value is Maybe, so that a missing Answer
// is handled with care.
type Answer uint8

// The answers. After Maybe, nothing that the pod uses may be removed.
const (
	Maybe Answer = iota
	No
	Yes
)

// String returns maybe, no or yes.
func (a Answer) String() string {
	switch a {
	case No:
		return "no"
	case Yes:
		return "yes"
	default:
		return "maybe"
	}
}

// Depth says how much of a pod has been observed.
type Depth uint8

const (
	// Unseen means that nothing is known about the pod.
	Unseen Depth = iota
	// StatesOnly means that the pod was in a list of the runtime and was not inspected yet. The Pod
	// has the IDs and states of its containers and sandboxes, but no names and times.
	StatesOnly
	// Whole means that the Pod has everything that the runtime reports. A pod that is missing in a
	// list counts as Whole too: the runtime has nothing of it.
	Whole
)

// View is the last known state of one pod in the runtime, and how certain it is.
type View struct {
	// Pod is the last observed state. It is never nil in the views of this module; it has only the
	// UID if the pod was not observed.
	Pod   *Pod
	Depth Depth
	// Err is the error of the newest inspection, or nil if it succeeded. If Err is set, Pod is
	// from an earlier inspection.
	Err error
}

// Runs reports whether a container or a sandbox of the pod runs; see [Pod.Runs]. The answer is
// Yes if one ran at the last observation. The answer No becomes Maybe if a newer inspection has
// failed.
func (v View) Runs() Answer { return v.sure(v.Pod.Runs()) }

// ContainersRun reports whether a container of the pod runs, with the rules of Runs.
func (v View) ContainersRun() Answer { return v.sure(v.Pod.ContainersRun()) }

// sure changes No to Maybe if the pod was not observed yet or the newest inspection has failed.
func (v View) sure(a Answer) Answer {
	if a == No && (v.Depth == Unseen || v.Err != nil) {
		return Maybe
	}
	return a
}

// Stopped reports that no container and no sandbox of the pod runs. It is true only after an
// inspection; a list is not enough. Things that the containers use may be removed only if Stopped
// is true.
func (v View) Stopped() bool { return v.Depth == Whole && v.Runs() == No }

// Absent reports whether the runtime has no sandbox and no container of the pod, in any state.
func (v View) Absent() Answer {
	switch {
	case v.Pod == nil:
		return Maybe
	case len(v.Pod.Sandboxes)+len(v.Pod.Containers) > 0:
		return No
	case v.Depth == Whole && v.Err == nil:
		return Yes
	default:
		return Maybe
	}
}

// Runs reports whether a container or a sandbox in that state runs. It is Maybe for Unknown.
func (s State) Runs() Answer {
	switch s {
	case Running:
		return Yes
	case Created, Exited:
		return No
	default:
		return Maybe
	}
}

// Runs reports whether a container or a sandbox of the pod runs: Yes if one does, and
// Maybe if none does and the state of one is Unknown. It is Maybe for a nil Pod.
func (p *Pod) Runs() Answer {
	out := p.ContainersRun()
	for i := 0; p != nil && i < len(p.Sandboxes); i++ {
		out = worst(out, p.Sandboxes[i].State.Runs())
	}
	return out
}

// ContainersRun reports whether a container of the pod runs, with the rules of Runs.
func (p *Pod) ContainersRun() Answer {
	if p == nil {
		return Maybe
	}
	out := No
	for i := range p.Containers {
		out = worst(out, p.Containers[i].State.Runs())
	}
	return out
}

// worst returns the answer for two containers together: Yes if one answer is Yes, else Maybe if one
// is Maybe, else No.
func worst(a, b Answer) Answer {
	switch {
	case a == Yes || b == Yes:
		return Yes
	case a == Maybe || b == Maybe:
		return Maybe
	default:
		return No
	}
}

package observed

// Answer is what is known of a yes-or-no question. The zero value is Maybe, so that
// code which forgets to fill an Answer in is careful.
type Answer uint8

// The answers. Nothing is taken from a pod on Maybe.
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

// Depth is how much of a pod has been seen.
type Depth uint8

const (
	// Unseen means that nothing is known of the pod.
	Unseen Depth = iota
	// StatesOnly means that the runtime has listed the pod, and nobody has inspected it
	// yet. The Pod has the IDs and states of its containers and sandboxes, no names and
	// no times.
	StatesOnly
	// Whole means that the Pod has everything that the runtime shows. A pod that was
	// missing in a list is seen whole as well: there is nothing of it.
	Whole
)

// View is what is known of one pod in the runtime, and how well.
type View struct {
	// Pod is what was seen last. It is never nil in the views of this module, and has
	// the UID alone if nothing was seen.
	Pod   *Pod
	Depth Depth
	// Err is why the newest inspection failed; nil if none did. Pod is older then.
	Err error
}

// Runs reports whether a container or a sandbox of the pod runs; see [Pod.Runs]. It
// is Yes if one ran when the pod was seen last, and No only if no newer look has
// failed.
func (v View) Runs() Answer { return v.sure(v.Pod.Runs()) }

// ContainersRun is Runs without the sandboxes.
func (v View) ContainersRun() Answer { return v.sure(v.Pod.ContainersRun()) }

// sure turns a No into Maybe that a newer look could have denied.
func (v View) sure(a Answer) Answer {
	if a == No && (v.Depth == Unseen || v.Err != nil) {
		return Maybe
	}
	return a
}

// Stopped reports that nothing of the pod runs, by an inspection and not by a list
// alone. Only then may what its containers use be taken from it.
func (v View) Stopped() bool { return v.Depth == Whole && v.Runs() == No }

// Absent reports whether the runtime has nothing of the pod, dead or alive.
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

// Runs reports whether a container or a sandbox of that state runs. One whose state
// the runtime cannot tell may.
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

// ContainersRun is Runs without the sandboxes.
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

// worst is the answer of two containers together: Yes goes before Maybe, and Maybe before No.
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

// Package admit decides whether a pod may run on a node beside the other pods. It checks the
// node's properties first, then every part in turn, as the kubelet does. A pod that would fit
// without terminating pods waits for them. For a pod that would fit without less important pods,
// it returns these pods as victims. It only decides: the caller reserves resources, lets pods
// wait, and terminates pods.
package admit

import (
	"cmp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/internal/book"
	"github.com/nodewright/nodewright/agent/internal/hooks"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podworker"
)

// ReserveTimeout limits a pod's reservation; each call to a plugin has a shorter timeout.
const ReserveTimeout = 2 * time.Minute

// Admission decides whether pods may run. All fields are required.
type Admission struct {
	Node  *fit.Node
	Hooks *hooks.Hooks
	Guard *hooks.Guard
	Book  *book.Book
	// Pods has the pods that the sources want. *podmgr.Manager implements it.
	Pods interface {
		Pods() []*v1.Pod
		Pod(uid types.UID) (*v1.Pod, bool)
	}
	// Workers has the states of pods' workers. *podworker.Manager implements it.
	Workers interface {
		List() []podworker.Status
		KnownTerminated(uid types.UID) bool
		TerminationRequested(uid types.UID) bool
	}
	// Phase returns the phase of a pod's last status.
	Phase func(uid types.UID) (v1.PodPhase, bool)

	turn []*v1.Pod // the result of Others; nil if it has to be listed again
}

// Turn drops the stored result of Others. The caller's loop calls it before each event that it
// handles; during one event it may decide on many pods. Only that loop may call Turn, Others and
// Counts.
func (a *Admission) Turn() { a.turn = nil }

// Others returns the result that Active had at the first call of Others after Turn, plus the pods
// that Counts has added since. Listing all pods again for each new pod would be expensive. Some
// of the pods may have ended since, so a rejection has to be confirmed with a new list; see
// Decide.
func (a *Admission) Others(except types.UID) []*v1.Pod {
	if a.turn == nil {
		a.turn = a.Active("")
	}
	is := func(p *v1.Pod) bool { return p.UID == except }
	if a.Book.Get(except).Stage != book.Unknown && slices.ContainsFunc(a.turn, is) {
		return slices.DeleteFunc(slices.Clone(a.turn), is)
	}
	return a.turn
}

// Counts adds a pod, with its allocated resources, to the result of Others.
func (a *Admission) Counts(pod *v1.Pod) {
	switch {
	case a.turn == nil:
	case slices.ContainsFunc(a.turn, func(p *v1.Pod) bool { return p.UID == pod.UID }):
		a.turn = nil // its allocation may have changed
	default:
		a.turn = append(a.turn, pod)
	}
}

// Verdict is the answer for one pod.
type Verdict struct {
	// Why is the reason why the pod may not run now, or may never run. It is nil if the pod may
	// run, provided that its reservations succeed.
	Why *part.Rejection
	// Victims are pods that the caller has to terminate, so that the pod fits. If there are any,
	// the pod waits for their end, and Why is the reason of the wait.
	Victims []Victim
}

// Victim is a pod to terminate for another one.
type Victim struct {
	Pod     *v1.Pod
	By      hooks.Of[part.Preempter]
	Missing v1.ResourceList
}

// Decide decides whether a pod may run beside the pods of [Admission.Others].
func (a *Admission) Decide(pod *v1.Pod) Verdict {
	others := a.Others(pod.UID)
	r := a.Ask(pod, others)
	if r != nil && !r.Final && !r.Waits() { // one of the others may have ended since
		others = a.Active(pod.UID)
		r = a.Ask(pod, others)
	}
	return a.makeRoom(pod, others, r)
}

// Refused decides on a pod whose reservation a part has rejected with r. Unlike Decide, it also
// counts pods that no source wants any more: they hold devices and exclusive CPUs until their
// containers have ended.
func (a *Admission) Refused(pod *v1.Pod, r *part.Rejection) Verdict {
	others := a.Active(pod.UID)
	for _, w := range a.ends(pod.UID) {
		if _, wanted := a.Pods.Pod(w.UID); !wanted && !a.Workers.KnownTerminated(w.UID) {
			others = append(others, a.Hooks.Allocated(a.Guard, w.Pod))
		}
	}
	return a.makeRoom(pod, others, r)
}

// makeRoom returns a wait for terminating pods, or victims, if the pod would fit then. Otherwise
// it returns the rejection r.
func (a *Admission) makeRoom(pod *v1.Pod, others []*v1.Pod, r *part.Rejection) Verdict {
	r = a.Later(pod, others, r)
	if r == nil || r.Final || r.Waits() {
		return Verdict{Why: r}
	}
	return a.preempt(pod, others, r)
}

// Ask checks the node's properties and calls every Admitter in turn. It returns the first
// rejection. If a part panics, the pod is rejected, since the part's answer is unknown.
func (a *Admission) Ask(pod *v1.Pod, others []*v1.Pod) *part.Rejection {
	if r := a.Node.Admit(pod, others); r != nil {
		return r
	}
	for _, h := range a.Hooks.Admitters {
		var r *part.Rejection
		if err := a.Guard.Call(h.Name, func() error { r = h.Hook.Admit(pod, others); return nil }); err != nil {
			return hooks.Unexpected(err)
		}
		if r != nil {
			return r
		}
	}
	return nil
}

// Active lists the pods that hold or will hold resources of the node, with their allocations. It
// leaves out the pod with the UID except. A pod whose containers have ended holds none, even
// while its volumes are unmounted. Pods with running reservations are included, so that their
// resources are not given to others, and so is a pod that was created again while its containers
// terminate.
func (a *Admission) Active(except types.UID) []*v1.Pod {
	counted := a.Book.Counted()
	var active []*v1.Pod
	for _, p := range a.Pods.Pods() {
		if !counted[p.UID] || p.UID == except || a.Workers.KnownTerminated(p.UID) {
			continue
		}
		// The containers of a pod in a terminal phase have ended. The exception is a terminating
		// pod, whose phase another writer may have set.
		if ph, ok := a.Phase(p.UID); ok && podmeta.IsTerminal(ph) && !a.Workers.TerminationRequested(p.UID) {
			continue
		}
		// The allocated resources count, not the requested ones: a resize may be pending.
		active = append(active, a.Hooks.Allocated(a.Guard, p))
	}
	return active
}

// Later returns a wait instead of the rejection r if the pod would fit without the terminating
// pods. The kubelet rejects such a pod, so that its controller creates another one, but a static
// pod has no controller. Terminating pods that have exceeded their grace period by Margin may
// never end, so pods do not wait for them.
func (a *Admission) Later(pod *v1.Pod, others []*v1.Pod, r *part.Rejection) *part.Rejection {
	if r == nil || r.Final || r.Waits() {
		return r
	}
	l := a.leave(pod.UID)
	if !l.until.After(time.Now()) {
		return r
	}
	if fits, wait := a.fitsWithout(pod, others, l); !fits {
		return cmp.Or(wait, r)
	}
	return &part.Rejection{Reason: r.Reason, RetryUntil: l.until, Message: waitsFor(r, l)}
}

// waitsFor returns the message of a wait. The text does not change during one wait, so that the
// status is not published again.
func waitsFor(r *part.Rejection, l leaving) string {
	slices.Sort(l.names)
	return r.Message + "; it waits for the end of " + strings.Join(l.names, ", ")
}

// fitsWithout reports whether a pod would be admitted without the leaving pods. It asks the parts
// too: CPUs or devices may be missing. If a part would still make the pod wait, for example for a
// plugin, wait is its answer.
func (a *Admission) fitsWithout(pod *v1.Pod, others []*v1.Pod, l leaving) (fits bool, wait *part.Rejection) {
	if r := a.Ask(pod, l.without(others)); r != nil {
		if r.Waits() {
			wait = r
		}
		return false, wait
	}
	for _, h := range a.Hooks.Forecasters {
		if !hooks.Ask(a.Guard, h, func(f part.Forecaster) bool { return f.FitsWithout(pod, l.uids) }) {
			return false, nil
		}
	}
	return true, nil
}

// preempt asks the parts for victims. Pods that are terminating count as gone, unless they have
// exceeded their grace period by Margin. Such a pod counts neither as gone nor as a victim, so that
// the next decision chooses others instead.
func (a *Admission) preempt(pod *v1.Pod, others []*v1.Pod, r *part.Rejection) Verdict {
	if len(a.Hooks.Preempters) == 0 {
		return Verdict{Why: r}
	}
	now := time.Now()
	var gone leaving
	busy := map[types.UID]bool{} // terminating pods cannot be victims
	for _, w := range a.ends(pod.UID) {
		busy[w.UID] = true
		if end := goneBy(w); end.After(now) {
			gone.add(w.UID, w.Namespace+"/"+w.Name, end)
		}
	}
	staying := gone.without(others)
	// If no resource is missing, the rejection has another reason, such as a taint, and victims
	// would not help.
	missing := a.Node.Missing(pod, staying)
	if len(missing) == 0 {
		return Verdict{Why: r}
	}
	// Pods with running reservations have no worker that could terminate them.
	candidates := slices.DeleteFunc(slices.Clone(staying), func(o *v1.Pod) bool {
		return busy[o.UID] || a.Book.Get(o.UID).Stage != book.Admitted
	})
	for _, h := range a.Hooks.Preempters {
		victims := hooks.Ask(a.Guard, h, func(p part.Preempter) []*v1.Pod { return p.Victims(pod, candidates, missing) })
		if len(victims) == 0 {
			continue
		}
		l := leaving{uids: slices.Clone(gone.uids), names: slices.Clone(gone.names), until: gone.until}
		for _, v := range victims {
			l.add(v.UID, v.Namespace+"/"+v.Name, now.Add(podlife.Grace(v, nil, podlife.Cause{Kind: podlife.Preempted})+Margin))
		}
		// No victims for a pod that would not run even without them.
		if fits, wait := a.fitsWithout(pod, others, l); wait != nil {
			return Verdict{Why: wait}
		} else if !fits {
			continue
		}
		out := Verdict{Why: &part.Rejection{
			Reason: r.Reason, RetryUntil: l.until, Outside: true, // more victims may follow if these do not end
			Message: waitsFor(r, l),
		}}
		for _, v := range victims {
			if wanted, ok := a.Pods.Pod(v.UID); ok {
				v = wanted // the wanted version, not the allocated one
			}
			out.Victims = append(out.Victims, Victim{Pod: v, By: h, Missing: missing})
		}
		return out
	}
	return Verdict{Why: r}
}

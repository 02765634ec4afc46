// Package admit decides whether a pod may run on a node, given the others: what the node is,
// then every part in turn. A pod that would fit without pods that are ending waits for them, and
// one that would fit without less important ones has them end. It only answers: the caller
// reserves, waits, and ends pods. The order is that of the kubelet.
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

// ReserveTimeout bounds the reservation of a pod that has to wait for somebody; each call
// to a plugin has a shorter one.
const ReserveTimeout = 2 * time.Minute

// Admission answers whether pods may run. All fields are required.
type Admission struct {
	Node  *fit.Node
	Hooks *hooks.Hooks
	Guard *hooks.Guard
	Book  *book.Book
	// Pods are those that the sources want. *podmgr.Manager implements it.
	Pods interface {
		Pods() []*v1.Pod
		Pod(uid types.UID) (*v1.Pod, bool)
	}
	// Workers are those of pods. *podworker.Manager implements it.
	Workers interface {
		List() []podworker.Status
		KnownTerminated(uid types.UID) bool
		TerminationRequested(uid types.UID) bool
	}
	// Phase returns the phase of a pod's last status.
	Phase func(uid types.UID) (v1.PodPhase, bool)

	turn []*v1.Pod // the pods of Others; nil: they are not listed yet
}

// Turn begins a turn of the caller's loop, in which many pods may be decided on: what Others
// returned before is out of date. Turn, Others and Counts are for that loop alone.
func (a *Admission) Turn() { a.turn = nil }

// Others is Active as it was when the turn first asked, with the pods that count since: a list
// for each of many pods that come together would cost more with each pod on the node. Pods of it
// may have ended meanwhile, so that nobody is rejected by it alone: see Decide.
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

// Counts says that a pod counts among the others from now on, with what it was allocated.
func (a *Admission) Counts(pod *v1.Pod) {
	switch {
	case a.turn == nil:
	case slices.ContainsFunc(a.turn, func(p *v1.Pod) bool { return p.UID == pod.UID }):
		a.turn = nil // it may have been allocated something else
	default:
		a.turn = append(a.turn, pod)
	}
}

// Verdict is the answer for one pod.
type Verdict struct {
	// Why is why the pod may not run now, or ever; nil if it may, as far as nothing has to be
	// reserved.
	Why *part.Rejection
	// Victims are to be ended for it: it would be admitted without them. Why is its wait for that.
	Victims []Victim
}

// Victim is a pod that is to be ended for another one.
type Victim struct {
	Pod     *v1.Pod
	By      hooks.Of[part.Preempter]
	Missing v1.ResourceList
}

// Decide answers for a pod beside the others, of which [Admission.Others] knows.
func (a *Admission) Decide(pod *v1.Pod) Verdict {
	others := a.Others(pod.UID)
	r := a.Ask(pod, others)
	if r != nil && !r.Final && !r.Waits() { // one of the others may have ended
		others = a.Active(pod.UID)
		r = a.Ask(pod, others)
	}
	r = a.Later(pod, others, r)
	if r == nil || r.Final || r.Waits() {
		return Verdict{Why: r}
	}
	return a.preempt(pod, others, r)
}

// Ask asks what the node is, and every Admitter in turn; the first rejection stands. A part that
// panics rejects the pod: nobody knows what it would have said.
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

// Active lists the pods that hold or will hold resources of the node, except for one, with what
// they were allocated. A pod whose containers have ended holds none, also while its volumes are
// taken down. Those that are reserved for count, so that nobody is admitted to their room meanwhile,
// and so does one that came back while its containers end.
func (a *Admission) Active(except types.UID) []*v1.Pod {
	counted := a.Book.Counted()
	var active []*v1.Pod
	for _, p := range a.Pods.Pods() {
		if !counted[p.UID] || p.UID == except || a.Workers.KnownTerminated(p.UID) {
			continue
		}
		// A terminal phase says that the containers have ended, unless somebody ends the pod and
		// set the phase before that.
		if ph, ok := a.Phase(p.UID); ok && podmeta.IsTerminal(ph) && !a.Workers.TerminationRequested(p.UID) {
			continue
		}
		// What it was allocated and not what it asks for: a resize may be pending.
		active = append(active, a.Hooks.Allocated(a.Guard, p))
	}
	return active
}

// Later lets a pod wait that would not be rejected if pods that are ending had ended: what they
// hold is free soon. The kubelet rejects such a pod for good, and a controller makes another; a
// static pod would have nobody to make it again. Pods that should have ended by now may never end:
// nobody waits for those.
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

// waitsFor is the message of a wait. The same wait has the same message, and is not published anew.
func waitsFor(r *part.Rejection, l leaving) string {
	slices.Sort(l.names)
	return r.Message + "; it waits for the end of " + strings.Join(l.names, ", ")
}

// fitsWithout reports whether a pod would be admitted if some had gone. Parts are asked as well as
// the node: CPUs or devices may be what is missing. A part that would have it wait even then, for
// its turn or a plugin, is asked again when that is over: wait.
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

// preempt asks parts for pods to end for one that does not fit. Those that are ending in their time
// count as gone; one that does not end in time is neither gone nor a victim, so that others end in
// its place when the pod is looked at again.
func (a *Admission) preempt(pod *v1.Pod, others []*v1.Pod, r *part.Rejection) Verdict {
	if len(a.Hooks.Preempters) == 0 {
		return Verdict{Why: r}
	}
	now := time.Now()
	var gone leaving
	busy := map[types.UID]bool{} // those that are ending cannot be ended once more
	for _, w := range a.ends(pod.UID) {
		busy[w.UID] = true
		if end := goneBy(w); end.After(now) {
			gone.add(w.UID, w.Namespace+"/"+w.Name, end)
		}
	}
	staying := gone.without(others)
	// Nothing is missing if the rejection has another reason, such as a taint: ending pods would
	// not help.
	missing := a.Node.Missing(pod, staying)
	if len(missing) == 0 {
		return Verdict{Why: r}
	}
	// Pods that are still being reserved for have no worker to end them.
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
		// No pod ends for one that would not run even then.
		if fits, wait := a.fitsWithout(pod, others, l); wait != nil {
			return Verdict{Why: wait}
		} else if !fits {
			continue
		}
		out := Verdict{Why: &part.Rejection{
			Reason: r.Reason, RetryUntil: l.until, Outside: true, // others may follow those that do not end
			Message: waitsFor(r, l),
		}}
		for _, v := range victims {
			if wanted, ok := a.Pods.Pod(v.UID); ok {
				v = wanted // as it is wanted, and not as it was allocated
			}
			out.Victims = append(out.Victims, Victim{Pod: v, By: h, Missing: missing})
		}
		return out
	}
	return Verdict{Why: r}
}

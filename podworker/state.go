package podworker

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
)

// stage is the stage of a pod's lifecycle. A pod never returns to an earlier one.
type stage uint8

const (
	// live: the pod is wanted.
	live stage = iota
	// ending: its end was asked for, and its syncer does not know yet.
	ending
	// stopping: its syncer was called to end it, or has found it at its end.
	stopping
	// stopped: its containers are proven stopped.
	stopped
	// finished: nothing is left to do.
	finished
)

func (s stage) String() string {
	return [...]string{"live", "ending", "stopping", "stopped", "finished"}[s]
}

// kind returns the stage for callers of the package. A pod that is ending counts as Terminating
// even before SyncTerminatingPod is called: no new work may begin for it.
func (s stage) kind() Kind {
	switch s {
	case live:
		return Sync
	case ending, stopping:
		return Terminating
	default:
		return Terminated
	}
}

// activity says whether the Syncer is called for a pod.
type activity uint8

const (
	// held: no update has been given to its worker, because Run was not
	// called or another pod has its name.
	held activity = iota
	// handed: the worker has its first update; the syncer was never called.
	handed
	// calling: the syncer is being called.
	calling
	// resting: the syncer was called and has returned.
	resting
)

func (a activity) String() string {
	return [...]string{"held", "handed", "calling", "resting"}[a]
}

// began reports whether the syncer was ever called for the pod.
func (a activity) began() bool { return a >= calling }

// claim is where a pod stands among the static pods of its full name.
type claim uint8

const (
	unclaimed claim = iota // not a static pod: names do not matter to it
	inLine                 // another pod has the name, or is before it
	owner                  // has the name
	freed                  // does not want it any more
)

func (c claim) String() string {
	return [...]string{"unclaimed", "in line for its name", "has its name", "name freed"}[c]
}

// reasons are the reasons why a pod terminates. A reason is never removed.
type reasons struct {
	deleted bool // its deletion was requested, or its source dropped it
	evicted bool // its content on the node may be removed
	runtime bool // only the runtime knows it
}

// end has the times and causes of a pod's termination.
type end struct {
	at    time.Time // when it was requested, or the pod ended by itself
	grace int64     // seconds; 0 until termination is requested
	by    time.Time // when grace is over; zero until then
	// done are closed once the containers are proven stopped.
	done   []chan<- struct{}
	causes []podlife.Cause
}

// known has the last spec and runtime pod that were passed to the Syncer.
type known struct {
	pod     *v1.Pod
	runtime *RuntimePod
}

// turn is one call of the syncer.
type turn struct {
	kind Kind
	work Work
}

// state is the complete input of decisions about a pod. Only step changes it. It is guarded by the
// lock of the workers.
type state struct {
	life     podlife.Life // never changes
	stage    stage
	activity activity
	claim    claim
	why      reasons // it ends
	news     bool    // pending is to be told

	end     end
	pending Update // what the syncer is to be told
	told    known  // what it was told last

	turn      turn      // the call in flight, or the last one
	newerThan time.Time // end of the last call that acted on the runtime
	since     time.Time // activity or birth
	waitFor   string    // what has to happen before it is no longer held
}

// newest is the newest spec, told or not; nil if only the runtime knows the pod.
func (s *state) newest() *v1.Pod {
	if s.pending.Pod != nil {
		return s.pending.Pod
	}
	return s.told.pod
}

// toldOfDeletion reports whether the syncer has had a version of the pod that is to be deleted.
func (s *state) toldOfDeletion() bool {
	return s.told.pod != nil && s.told.pod.DeletionTimestamp != nil
}

// pod is a state and whose it is. The state is guarded by the lock of the
// workers.
type pod struct {
	uid             types.UID
	namespace, name string
	state

	outcome Outcome // of the call in flight, which alone may set it
}

// newPod is a pod as its first update names it.
func newPod(uid types.UID, u *Update) *pod {
	p := &pod{uid: uid, state: state{life: podlife.Life{UID: uid, N: u.Life}}}
	if u.Pod != nil {
		p.namespace, p.name = u.Pod.Namespace, u.Pod.Name
	} else {
		p.namespace, p.name = u.RuntimePod.Namespace, u.RuntimePod.Name
	}
	return p
}

func (p *pod) fullName() string { return podmeta.FullName(p.namespace, p.name) }

// event is an input of step: one of the types that follow.
type event any

type (
	// updated: there is news of the pod.
	updated struct {
		update Update
		first  bool // the pod was not seen before
		idle   bool // with first: the runtime is known to run nothing of it
	}
	// opened: Run was called.
	opened struct{}
	// named: the pod has its name now.
	named struct{}
	// denied: it waits for its name.
	denied struct{ waitFor string }
	// begun: its worker begins a call.
	begun struct{}
	// returned: the call has returned.
	returned struct {
		outcome Outcome
		err     error
	}
	// resynced: somebody wants it looked at.
	resynced struct{}
	// unwanted: it is not among the pods that are wanted.
	unwanted struct{}
	// shut: Run's context has ended.
	shut struct{}
)

// effect is an output of step, for its caller to execute: one of the types that follow.
type effect any

type (
	// deliver has the pod's worker call: there is something pending. Interrupt cancels
	// the call in flight.
	deliver struct{ interrupt bool }
	// again has it call even if there is nothing pending.
	again struct{ interrupt bool }
	// call has the syncer called, as state.turn says.
	call struct{}
	// next has the worker go on in that way.
	next struct{ then then }
	// notify has done closed.
	notify struct{ done chan<- struct{} }
	// countBegin counts a pod that begins, by its containers.
	countBegin struct{ containers int }
	// countStart counts work on an update that begins, by the update's age.
	countStart struct{ age time.Duration }
	// countGone counts a pod that ended without any call.
	countGone struct{}
	// claimName puts the pod in line for its name, and has it informed when it has it.
	claimName struct{}
	// freeName: the pod does not want its name any more.
	freeName struct{}
	// over has the Manager's owner told that nothing is left to do for the pod.
	over struct{}
	// forget drops the pod, and begins anew with next unless it is nil.
	forget struct{ next *Update }
)

// then is a worker's next step after a call.
type then int

const (
	atRest   then = iota // it waits for an update
	resync               // after the interval
	retry                // after the back-off
	nextCall             // at once
)

func (t then) String() string { return [...]string{"rest", "resync", "retry", "call again"}[t] }

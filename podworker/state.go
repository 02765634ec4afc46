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
	// live means that the pod is wanted.
	live stage = iota
	// ending means that the pod's end was requested, and the syncer was not called for it yet.
	ending
	// stopping means that the syncer was called to end the pod, or has reported that the pod has
	// ended by itself.
	stopping
	// stopped means that the pod's containers are proven to have stopped.
	stopped
	// finished means that nothing is left to do.
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
	// held means that no update was given to the pod's worker, because Run was not called or another
	// pod has the name.
	held activity = iota
	// handed means that the worker has the first update, and the syncer was never called.
	handed
	// calling means that the syncer is being called.
	calling
	// resting means that the syncer was called and has returned.
	resting
)

func (a activity) String() string {
	return [...]string{"held", "handed", "calling", "resting"}[a]
}

// began reports whether the syncer was ever called for the pod.
func (a activity) began() bool { return a >= calling }

// claim says whether a static pod has its full name, which one static pod can have at a time.
type claim uint8

const (
	unclaimed claim = iota // not a static pod: it needs no name
	inLine                 // another pod has the name, or is before this one in the queue
	owner                  // the pod has the name
	freed                  // the pod does not need the name any more
)

func (c claim) String() string {
	return [...]string{"unclaimed", "in line for its name", "has its name", "name freed"}[c]
}

// reasons are the reasons why a pod terminates. A reason is never removed.
type reasons struct {
	deleted bool // the pod's deletion was requested, or its source dropped it
	evicted bool // the pod's content on the node may be removed
	runtime bool // only the runtime knows the pod: no source has it
}

// end has the times and causes of a pod's termination.
type end struct {
	at    time.Time // when the termination was requested, or the pod ended by itself
	grace int64     // seconds; 0 until termination is requested
	by    time.Time // when the grace period ends; zero while grace is 0
	// done has channels that are closed once the containers are proven to have stopped.
	done   []chan<- struct{}
	causes []podlife.Cause
}

// known has the last spec and runtime pod that were passed to the Syncer.
type known struct {
	pod     *v1.Pod
	runtime *RuntimePod
}

// turn is one call of the syncer: the stage that it is for, and the argument.
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
	why      reasons // why the pod terminates
	news     bool    // pending has an update for the syncer

	end     end
	pending Update // the update for the next call of the syncer
	told    known  // the values that were passed to the syncer last

	turn      turn      // the call in flight, or the last one
	newerThan time.Time // end of the last call that acted on the runtime
	since     time.Time // last change of activity, or the pod's first update
	waitFor   string    // what the pod waits for while it is held, in words
}

// newest returns the newest spec, which may still be pending. It returns nil if only the runtime
// knows the pod.
func (s *state) newest() *v1.Pod {
	if s.pending.Pod != nil {
		return s.pending.Pod
	}
	return s.told.pod
}

// toldOfDeletion reports whether the syncer was called with a version of the pod that has a
// deletion timestamp.
func (s *state) toldOfDeletion() bool {
	return s.told.pod != nil && s.told.pod.DeletionTimestamp != nil
}

// pod is a pod's identity with its state. The lock of the workers guards the state.
type pod struct {
	uid             types.UID
	namespace, name string
	state

	outcome Outcome // result of the call in flight; only handle sets it
	// failures is the number of different failures in a row, for the log. until is the RetryAt of
	// the last one; zero if it had none.
	failures int
	until    time.Time
}

// newPod returns a pod in its initial state. u is the first update of the pod.
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
	// updated means that an update of the pod came.
	updated struct {
		update Update
		first  bool // this is the first update of the pod
		idle   bool // with first, that the runtime is known to run no container of the pod
	}
	// opened means that Run was called.
	opened struct{}
	// named means that the pod has its full name now.
	named struct{}
	// denied means that the pod has to wait for its full name.
	denied struct{ waitFor string }
	// begun means that the pod's worker begins a call.
	begun struct{}
	// returned means that the call has returned.
	returned struct {
		outcome Outcome
		err     error
	}
	// resynced means that [Manager.Resync] was called for the pod.
	resynced struct{}
	// unwanted means that SyncKnownPods was called without the pod.
	unwanted struct{}
	// shut means that Run's context has ended.
	shut struct{}
)

// effect is an output of step, for its caller to execute: one of the types that follow.
type effect any

type (
	// deliver makes the pod's worker call the syncer with the pending update. interrupt also cancels
	// the call in flight.
	deliver struct{ interrupt bool }
	// again makes the pod's worker call the syncer, even if no update is pending. interrupt also
	// cancels the call in flight.
	again struct{ interrupt bool }
	// call makes the worker call the syncer with state.turn.
	call struct{}
	// next says what the worker does after a call.
	next struct{ then then }
	// notify closes the channel done.
	notify struct{ done chan<- struct{} }
	// countBegin makes the metrics count a pod that is synced for the first time, with the number of
	// its containers.
	countBegin struct{ containers int }
	// countStart makes the metrics count the time from an update's Start to the call of the syncer.
	countStart struct{ age time.Duration }
	// countGone makes the metrics count a pod that ended without any call of the syncer.
	countGone struct{}
	// claimName tries to give the pod its full name. The event named or denied follows.
	claimName struct{}
	// freeName means that the pod does not need its full name any more.
	freeName struct{}
	// over calls Config.Finished: nothing is left to do for the pod.
	over struct{}
	// forget drops the pod. If next is not nil, a new pod with the same UID is added from this
	// update.
	forget struct{ next *Update }
)

// then is a worker's next step after a call.
type then int

const (
	atRest   then = iota // the worker waits for an update
	resync               // the worker calls again after the resync interval
	retry                // the worker calls again after the back-off
	nextCall             // the worker calls again at once
)

func (t then) String() string { return [...]string{"rest", "resync", "retry", "call again"}[t] }

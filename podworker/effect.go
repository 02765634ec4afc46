package podworker

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podmeta"
)

// event describes what happened to a pod. It is one of a fixed list, so that
// histories of events can be written down in tests.
type event int

const (
	updated  event = iota // update, with first at the first sight of the pod
	opened                // Run was called
	named                 // it has its name now
	denied                // it waits for its name: waitFor
	begun                 // its worker begins a call
	returned              // the call has returned: result
	resynced              // somebody wants it looked at
	unwanted              // it is not among the pods that are wanted
	shut                  // Run's context has ended
)

// input is an event and what is known of it.
type input struct {
	event event
	now   time.Time
	open  bool // Run was called

	update Update
	first  bool // of updated: the pod was not seen before
	idle   bool // of the first update: the runtime is known to run nothing of the pod

	result  result
	waitFor string
}

// result is what came of a call.
type result struct {
	outcome Outcome
	err     error
}

// action is something that a step wants done.
type action int

const (
	deliver    action = iota // have the pod's worker call: there is something pending
	again                    // have it call even if there is not
	call                     // call the syncer, as state.turn says
	next                     // tell the worker how it goes on: then
	notify                   // close done
	countBegin               // a pod begins: its containers
	countStart               // work on an update begins: its age
	countGone                // a pod ended without any call
	claimName                // put the pod in line, and tell it when it is named
	freeName                 // it does not want its name any more
	forget                   // drop the pod; begin anew with restart, if there is one
)

// then is how a worker goes on after a call.
type then int

const (
	atRest   then = iota // it waits for an update
	resync               // after the interval
	retry                // after the back-off
	nextCall             // at once
)

func (t then) String() string { return [...]string{"rest", "resync", "retry", "call again"}[t] }

// effect is an action and what it needs. It is one type for all actions:
// effects are kept in a slice that is used again, without an allocation for
// each.
type effect struct {
	action    action
	pod       *pod // that it is about
	interrupt bool // deliver, again: cancel the call in flight
	restart   *Update
	then      then
	done      chan<- struct{}
	count     int
	age       time.Duration
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
	if u.Pod != nil {
		return &pod{uid: uid, namespace: u.Pod.Namespace, name: u.Pod.Name}
	}
	return &pod{uid: uid, namespace: u.RuntimePod.Namespace, name: u.RuntimePod.Name}
}

func (p *pod) fullName() string { return podmeta.FullName(p.namespace, p.name) }

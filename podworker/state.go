package podworker

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// stage is how far a pod is in its life. None is ever left backwards.
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

// kind is the stage as the outside sees it. A pod that is ending counts as
// Terminating although its syncer does not know yet: no new work is to begin
// for it.
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

// activity is what is being done about a pod.
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

// reasons say why a pod ends. They only add up.
type reasons struct {
	deleted bool // the API server, or whoever wants pods, wants it no more
	evicted bool
	runtime bool // the runtime runs it although nobody wants it
}

// end is what is known of a pod's end.
type end struct {
	at    time.Time // it was asked for, or came
	grace int64     // seconds; 0 until termination is requested
	// done are closed once the containers are proven stopped; funcs change the
	// status until then.
	done  []chan<- struct{}
	funcs []func(*v1.PodStatus)
}

// known is what the syncer was last told, merged.
type known struct {
	pod, mirror *v1.Pod
	runtime     *RuntimePod
}

// turn is one call of the syncer.
type turn struct {
	kind Kind
	work Work
}

// state is all that decides about a pod. step changes it. It is guarded by the
// lock of the workers.
type state struct {
	stage    stage
	activity activity
	claim    claim
	why      reasons // it ends
	news     bool    // pending is to be told

	end     end
	pending Update  // what the syncer is to be told
	told    known   // what it was told last
	restart *Update // a create that waits for this life to be over

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

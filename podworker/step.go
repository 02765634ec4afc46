package podworker

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmeta"
)

// step is what an event makes of a pod's state, and what is to be done about
// it. It reads no clock, takes no lock and starts nothing: the same arguments
// always give the same answer. The effects are appended to fx, and are to be
// applied in their order.
//
// State and input are changed in place: to copy them would cost more than most steps,
// and would not fit the first stack of a worker's goroutine.
func step(s *state, in *input, fx []effect) []effect {
	t := transition{state: s, in: in, fx: fx}
	switch in.event {
	case updated:
		t.updated(&in.update, in.first, in.idle)
	case opened:
		t.opened()
	case named:
		t.named()
	case denied:
		t.denied(in.waitFor)
	case begun:
		t.begun()
	case returned:
		t.returned(&in.result)
	case resynced:
		t.resynced()
	case unwanted:
		t.unwanted()
	case shut:
		t.closeDone()
	}
	return t.fx
}

// transition is a step being made.
type transition struct {
	*state
	in *input
	fx []effect
}

// emit adds an effect for the caller to fill in.
//
// The effect lies in a slice that may move: it is filled in before the next one
// is emitted.
//
//go:noinline
func (t *transition) emit(a action) *effect {
	n := len(t.fx)
	t.fx = slices.Grow(t.fx, 1)[:n+1]
	e := &t.fx[n]
	*e = effect{}
	e.action = a
	return e
}

// closeDone has every completion channel closed, once. Clearing the list is
// what makes it once.
func (t *transition) closeDone() {
	for _, d := range t.end.done {
		t.emit(notify).done = d
	}
	t.end.done = nil
}

// refuse has the completion channel closed of an update that ends nothing.
// Whoever waits for it must not wait forever.
func (t *transition) refuse(k *KillOptions) {
	if k != nil && k.Done != nil {
		t.emit(notify).done = k.Done
	}
}

// updated may change u, which is its own copy.
func (t *transition) updated(u *Update, first, idle bool) {
	if first {
		t.born(u.Pod, idle)
	}
	fromRuntime := u.RuntimePod != nil
	if fromRuntime {
		t.why.runtime = true
		if p := t.newest(); p != nil { // so the whole teardown is used
			u.Pod, u.RuntimePod = p, nil
		}
	}
	switch {
	// A static pod that was removed and put back while it still ends.
	case !first && u.Type == CreateUpdate && t.stage > live && u.Pod.DeletionTimestamp == nil:
		t.keepRestart(u)
		return
	case t.stage == finished && u.Pod != nil && u.Pod.DeletionTimestamp != nil && !t.why.deleted:
		// It ended by itself, and only then heard that it is to go: another life
		// takes away what it left.
		u.Type = CreateUpdate
		t.keepRestart(u)
		return
	case t.stage == finished:
		t.refuse(u.Kill)
		return
	}
	if t.restart != nil && !fromRuntime {
		t.reviseRestart(u)
	}
	became := t.noteEnd(u, fromRuntime)
	shortened := false
	switch t.stage.kind() {
	case Terminated:
		t.refuse(u.Kill)
		if fromRuntime {
			return
		}
	case Terminating:
		shortened = t.collectKill(u, became)
	default:
		t.refuse(u.Kill)
	}
	u.Kill = nil // all that counts of it is in the state
	t.hand(u, became || shortened)
}

// born begins a pod's life. A pod first seen in a terminal phase, with nothing
// of it running, begins near the end.
func (t *transition) born(p *v1.Pod, idle bool) {
	t.since = t.in.now
	if p == nil {
		return
	}
	// Only the clean-up is left, as after a restart of the agent.
	if podmeta.IsTerminal(p.Status.Phase) && idle {
		t.stage, t.end.at = stopped, t.in.now
	}
	if podmeta.IsStatic(p) {
		t.claim = inLine
	}
}

// keepRestart keeps a create for the pod's next life, which begins when this
// one is over.
func (t *transition) keepRestart(u *Update) {
	t.refuse(u.Kill)
	kept := *u
	kept.Kill = nil
	t.restart = &kept
	if t.stage == finished {
		t.forget()
	}
}

// reviseRestart lets an update that came after the create change the next
// life, too, or call it off.
func (t *transition) reviseRestart(u *Update) {
	switch {
	case u.Type == KillUpdate || u.Pod.DeletionTimestamp != nil:
		t.restart = nil
	case u.Type == ConfigUpdate && !podmeta.IsTerminal(u.Pod.Status.Phase):
		t.restart.Pod = u.Pod
		if u.MirrorPod != nil {
			t.restart.MirrorPod = u.MirrorPod
		}
	}
}

// resynced has the pod looked at again with what is known of it.
func (t *transition) resynced() {
	if t.stage != finished && t.activity != held {
		t.emit(again)
	}
}

// unwanted has a pod end that is not wanted any more. What the syncer was never
// called for is dropped.
func (t *transition) unwanted() {
	t.why.deleted = true
	t.restart = nil
	switch {
	case t.stage == finished, !t.activity.began() && !t.why.runtime && t.stage.kind() != Terminated:
		t.forget()
	case t.stage == live:
		t.stage, t.end.at = ending, t.in.now
		t.end.grace, _ = effectiveGrace(0, t.newest(), nil)
		t.emit(again).interrupt = true
	}
}

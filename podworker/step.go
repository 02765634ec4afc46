package podworker

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/seconds"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
)

// step changes s by an event, and returns what is to be done about it, in that order.
// open reports whether Run was called. It reads no clock, takes no lock and starts
// nothing: the same arguments always give the same answer.
func step(s *state, e event, now time.Time, open bool) []effect {
	t := transition{state: s, now: now, open: open}
	switch e := e.(type) {
	case updated:
		t.updated(&e.update, e.first, e.idle)
	case opened:
		t.opened()
	case named:
		t.named()
	case denied:
		t.denied(e.waitFor)
	case begun:
		t.begun()
	case returned:
		t.returned(e)
	case resynced:
		t.resynced()
	case unwanted:
		t.unwanted()
	case shut:
		t.closeDone()
	}
	return t.effects
}

// transition is a step being made.
type transition struct {
	*state
	now     time.Time
	open    bool
	effects []effect
}

func (t *transition) emit(e effect) { t.effects = append(t.effects, e) }

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
	if t.stage == finished {
		t.refuse(u.Kill)
		// It may have ended without its syncer being told that it is to go: then another
		// record takes away what it left, and tells others.
		if u.Pod != nil && (u.Type == CreateUpdate && u.Pod.DeletionTimestamp == nil || u.Pod.DeletionTimestamp != nil && !t.toldOfDeletion()) {
			u.Type, u.Kill = CreateUpdate, nil
			t.forget(u)
		}
		return
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
	t.since = t.now
	if p == nil {
		return
	}
	// Only the clean-up is left, as after a restart of the agent.
	if podmeta.IsTerminal(p.Status.Phase) && idle {
		t.stage, t.end.at = stopped, t.now
	}
	if podmeta.IsStatic(p) {
		t.claim = inLine
	}
}

// noteEnd records that the pod is to end, and why, and reports whether that is
// new. Reasons that come later are added: what was killed first can still be
// evicted or deleted.
func (t *transition) noteEnd(u *Update, fromRuntime bool) (became bool) {
	end := u.Type == KillUpdate
	switch {
	case fromRuntime, u.Pod != nil && u.Pod.DeletionTimestamp != nil:
		t.why.deleted, end = true, true
	case u.Pod != nil && podmeta.IsTerminal(u.Pod.Status.Phase):
		end = true
	}
	if u.Type == KillUpdate && u.Kill != nil && u.Kill.Why.Evicts() {
		t.why.evicted = true
	}
	if !end || t.stage > live {
		return false
	}
	t.stage, t.end.at = ending, t.now
	return true
}

// collectKill adds an update's options to those of a pod that terminates and
// reports whether it has less time now. Done is closed even if the pod has nothing to
// stop.
func (t *transition) collectKill(u *Update, became bool) (shortened bool) {
	var why podlife.Cause
	if k := u.Kill; k != nil {
		if k.Done != nil {
			t.end.done = append(t.end.done, k.Done)
		}
		why = k.Why
		t.end.causes = append(t.end.causes, why)
	}
	// An update of the runtime alone bears no spec.
	pod := u.Pod
	if pod == nil {
		pod = t.newest()
	}
	if !became && t.end.grace == 0 { // it ended by itself, with the time of its spec
		t.grant(t.newest(), podlife.Cause{})
	}
	return t.grant(pod, why)
}

// grant gives a pod its time to end, and reports whether it has less than before.
func (t *transition) grant(pod *v1.Pod, why podlife.Cause) (shortened bool) {
	before := t.end.grace
	if t.end.grace, shortened = effectiveGrace(before, pod, why); t.end.grace != before {
		t.end.by = t.now.Add(seconds.Of(t.end.grace))
	}
	return shortened
}

// effectiveGrace returns the seconds a pod has to end, given those it had
// (0: none yet), and whether that is less than before.
//
// The first time is that of [podlife.Grace]; from then on only a time that is given, by a
// deletion or a cause, shortens it. Anything below 1 counts as 1, the least that lets a
// process see its signal. A pod of which only the runtime knows has none: its containers
// carry theirs, and its spec may come later.
func effectiveGrace(current int64, pod *v1.Pod, why podlife.Cause) (grace int64, shortened bool) {
	given := why.Grace != nil || pod != nil && pod.DeletionGracePeriodSeconds != nil
	switch {
	case current == 0 && pod == nil && !given, current != 0 && !given:
		return current, false
	case current == 0:
		return max(podlife.GraceSeconds(pod, why), 1), false
	}
	grace = min(max(podlife.GraceSeconds(pod, why), 1), current)
	return grace, grace < current
}

// hand makes an update what the syncer is told next, and has the pod's worker
// tell it, once the pod may begin. Interrupt cancels the call in flight, which
// is right only if it works on what is no longer true.
func (t *transition) hand(u *Update, interrupt bool) {
	coalesced := t.news
	// The older start counts for the latency: the cause was seen then.
	if coalesced {
		u.Start = earliest(t.pending.Start, u.Start)
	}
	t.pending, t.news = *u, true
	switch {
	case t.activity == held && u.RuntimePod == nil && t.claim != unclaimed:
		t.begin()
	// A worker that has been told of the pending update need not be told again.
	case interrupt || !coalesced:
		t.deliver(interrupt)
	}
}

// earliest is the earlier of two times that may be zero.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// begin lets a static pod begin, or has it wait where it will be told.
func (t *transition) begin() {
	if !t.open {
		return
	}
	switch t.stage.kind() {
	case Terminated:
		// Nothing of it runs: it keeps others of its name out, but is not
		// kept out by them.
		t.emit(claimName{})
		t.release()
	case Terminating:
		// It never ran. There is nothing to end, but whoever asked for its
		// end wants to hear of it, and to have the status say so.
		if slices.ContainsFunc(t.end.causes, podlife.Cause.Shows) {
			t.release()
			return
		}
		t.stage = stopped
		t.emit(countGone{})
		t.finish()
	default:
		t.emit(claimName{})
	}
}

// opened lets a pod begin whose updates came before Run.
func (t *transition) opened() {
	if t.activity == held {
		t.begin()
	}
}

// named notes that the pod has its name.
func (t *transition) named() {
	t.claim = owner
	t.release()
}

// denied notes for whom the pod waits.
func (t *transition) denied(waitFor string) {
	if t.activity == held {
		t.waitFor = waitFor
	}
}

// release lets a pod begin that was held.
func (t *transition) release() {
	t.waitFor = ""
	if t.activity == held {
		t.deliver(false)
	}
}

// deliver has the pod's worker called for what is pending. From the first time
// on the pod is no longer held.
func (t *transition) deliver(interrupt bool) {
	if t.activity == held {
		t.activity = handed
	}
	t.emit(deliver{interrupt})
}

// begun makes a call of what is pending, or of what the syncer was told last.
func (t *transition) begun() {
	if t.stage == finished {
		return
	}
	why := SyncUpdate
	if u := &t.pending; t.news {
		why = u.Type
		t.countBegin(u)
		t.told.merge(u)
		t.pending, t.news = Update{}, false
	}
	// From here on containers may be on their way down: queries report the pod as
	// stopping, not only as asked to.
	if t.stage == ending {
		t.stage = stopping
	}
	t.activity, t.since = calling, t.now
	t.prepare(why)
	t.emit(call{})
}

// countBegin has the metrics count an update, and the pod's containers with its
// first.
func (t *transition) countBegin(u *Update) {
	if !t.activity.began() && u.Pod != nil {
		t.emit(countBegin{len(u.Pod.Spec.Containers)})
	}
	if !u.Start.IsZero() {
		t.emit(countStart{t.now.Sub(u.Start)})
	}
}

// merge adds an update to what the syncer was told, keeping what it does not
// bring. The runtime's view is replaced even by nil: an update with a spec is
// the better source.
func (k *known) merge(u *Update) {
	k.runtime = u.RuntimePod
	if u.Pod != nil {
		k.pod = u.Pod
	}
}

// prepare makes the turn: what the syncer is called for, and with.
func (t *transition) prepare(why UpdateType) {
	t.turn = turn{t.stage.kind(), Work{
		Type: why, Life: t.life, Pod: t.told.pod, RuntimePod: t.told.runtime, NewerThan: t.newerThan, Evicted: t.why.evicted,
	}}
	if t.turn.kind == Sync {
		return
	}
	w := &t.turn.work
	// The bounded slice keeps later causes out of the array that the syncer
	// reads without a lock.
	w.Causes = t.end.causes[:len(t.end.causes):len(t.end.causes)]
	// Of a copy: the grace may shrink while the syncer reads it.
	if t.end.grace > 0 {
		grace := t.end.grace
		w.GracePeriodSeconds = &grace
	}
}

// returned notes the end of a call. A call that acted on the runtime, or may
// have, moves newerThan on, so that the next one does not decide by what was
// observed before.
func (t *transition) returned(r returned) {
	if t.activity != calling {
		return
	}
	during := t.turn.kind
	t.activity, t.since = resting, t.now
	if r.err != nil || r.outcome.Acted || during != Sync {
		t.newerThan = t.now
	}
	if r.err != nil {
		t.goOn(retry)
		return
	}
	t.succeeded(during, r.outcome.Terminal)
}

// succeeded moves the pod on in its life.
func (t *transition) succeeded(during Kind, terminal bool) {
	switch {
	// What came during the clean-up, such as the request to delete the pod, has to reach
	// the syncer too.
	case during == Terminated && t.news:
		t.goOn(nextCall)
	case during == Terminated:
		t.goOn(atRest)
		t.finish()
	case during == Terminating && t.told.runtime != nil:
		t.goOn(atRest)
		t.forget(nil)
		t.emit(over{})
	// Containers are proven stopped: who waits for that hears of it before the
	// clean-up, which may take long or fail.
	case during == Terminating:
		t.stage = stopped
		t.closeDone()
		t.goOn(nextCall)
	case terminal:
		if t.stage == live {
			t.end.at = t.now
		}
		t.stage = stopping
		t.goOn(nextCall)
	// Even if the end was asked for during the call: its update is pending, and
	// the worker goes on with that.
	default:
		t.goOn(resync)
	}
}

// goOn has the worker go on in some way. Each call that returns leads to one of
// them.
func (t *transition) goOn(how then) { t.emit(next{how}) }

// finish closes a pod's life. It stays known, so that late updates are
// recognised, until it is unwanted.
func (t *transition) finish() {
	t.stage = finished
	t.pending, t.news = Update{}, false
	t.end.causes, t.waitFor = nil, ""
	t.closeDone()
	t.freeName()
	t.emit(over{})
}

// forget drops a pod, and begins anew with next unless it is nil.
func (t *transition) forget(next *Update) {
	t.stage, t.pending, t.news = finished, Update{}, false
	t.closeDone()
	t.freeName()
	t.emit(forget{next})
}

// freeName gives up the pod's name, or its place in line for it. It does
// nothing the second time.
func (t *transition) freeName() {
	if t.claim == inLine || t.claim == owner {
		t.claim = freed
		t.emit(freeName{})
	}
}

// resynced has the pod looked at again with what is known of it.
func (t *transition) resynced() {
	if t.stage != finished && t.activity != held {
		t.emit(again{})
	}
}

// unwanted has a pod end that is not wanted any more. What the syncer was never
// called for is dropped.
func (t *transition) unwanted() {
	t.why.deleted = true
	switch {
	case t.stage == finished, !t.activity.began() && !t.why.runtime && t.stage.kind() != Terminated:
		t.forget(nil)
	case t.stage == live:
		t.stage, t.end.at = ending, t.now
		t.grant(t.newest(), podlife.Cause{})
		t.emit(again{interrupt: true})
	}
}

// closeDone has every completion channel closed, once. Clearing the list is
// what makes it once.
func (t *transition) closeDone() {
	for _, d := range t.end.done {
		t.emit(notify{d})
	}
	t.end.done = nil
}

// refuse has the completion channel closed of an update that ends nothing.
// Whoever waits for it must not wait forever.
func (t *transition) refuse(k *KillOptions) {
	if k != nil && k.Done != nil {
		t.emit(notify{k.Done})
	}
}

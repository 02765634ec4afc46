package podworker

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/seconds"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
)

// step applies an event to s and returns the effects that the caller has to execute, in their
// order. open reports whether Run was called. step reads no clock, takes no lock and starts
// nothing: the same arguments always give the same result.
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

// transition is one call of step: the state, the arguments and the effects so far.
type transition struct {
	*state
	now     time.Time
	open    bool
	effects []effect
}

func (t *transition) emit(e effect) { t.effects = append(t.effects, e) }

// updated applies an update. It may change u, which is a copy. first reports that this is the pod's
// first update, and idle that the runtime runs no container of the pod.
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

// born sets the initial state of a new pod. A pod whose first update has a terminal phase and of
// which no container runs begins in the stage stopped.
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

// noteEnd records whether the update ends the pod, and why. became reports that the pod was not
// ending before. Later reasons are added: a pod that was killed first can still be evicted or
// deleted.
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

// collectKill adds the KillOptions of an update to the KillOptions of a pod that terminates.
// shortened reports that the grace period got shorter. Done is closed even if the pod has nothing
// to stop.
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

// grant sets the grace period of a pod that terminates. shortened reports that the pod had a
// longer one before.
func (t *transition) grant(pod *v1.Pod, cause podlife.Cause) (shortened bool) {
	before := t.end.grace
	if t.end.grace, shortened = effectiveGrace(before, pod, cause); t.end.grace != before {
		t.end.by = t.now.Add(seconds.Of(t.end.grace))
	}
	return shortened
}

// effectiveGrace returns the grace period of a pod in seconds, and whether it is shorter than
// current, the grace period so far. current is 0 if the pod has none yet.
//
// The first grace period is that of [podlife.Grace]. Afterwards only the grace period of a
// deletion or of a cause can shorten it. A value below 1 counts as 1, the least that lets a
// process handle its signal. If only the runtime knows the pod (pod is nil), the result is 0
// unless the cause names a grace period: each container has its own in an annotation, and the
// spec may come later.
func effectiveGrace(current int64, pod *v1.Pod, cause podlife.Cause) (grace int64, shortened bool) {
	given := cause.Grace != nil || pod != nil && pod.DeletionGracePeriodSeconds != nil
	switch {
	case current == 0 && pod == nil && !given, current != 0 && !given:
		return current, false
	case current == 0:
		return max(podlife.GraceSeconds(pod, cause), 1), false
	}
	grace = min(max(podlife.GraceSeconds(pod, cause), 1), current)
	return grace, grace < current
}

// hand makes u the pending update and makes the pod's worker call the syncer with it, once the
// pod may begin. interrupt cancels the call in flight; callers set it only if that call works on
// outdated facts.
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

// earliest returns the earlier of two times. A zero time does not count.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// begin lets a static pod begin, or requests its full name, for which the pod may have to wait.
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

// opened lets a pod begin whose updates came before Run was called.
func (t *transition) opened() {
	if t.activity == held {
		t.begin()
	}
}

// named records that the pod has its full name, and lets the pod begin.
func (t *transition) named() {
	t.claim = owner
	t.release()
}

// denied records what a held pod waits for.
func (t *transition) denied(waitFor string) {
	if t.activity == held {
		t.waitFor = waitFor
	}
}

// release lets a held pod begin.
func (t *transition) release() {
	t.waitFor = ""
	if t.activity == held {
		t.deliver(false)
	}
}

// deliver makes the pod's worker call the syncer with the pending update. After the first call of
// deliver the pod is no longer held.
func (t *transition) deliver(interrupt bool) {
	if t.activity == held {
		t.activity = handed
	}
	t.emit(deliver{interrupt})
}

// begun prepares a call of the syncer with the pending update. If none is pending, the syncer
// gets the arguments of its last call again.
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

// countBegin makes the metrics count an update and, with the first call, the pod's containers.
func (t *transition) countBegin(u *Update) {
	if !t.activity.began() && u.Pod != nil {
		t.emit(countBegin{len(u.Pod.Spec.Containers)})
	}
	if !u.Start.IsZero() {
		t.emit(countStart{t.now.Sub(u.Start)})
	}
}

// merge replaces the spec and the runtime pod in k by the ones of an update. If the update has no
// Pod, the spec in k stays. RuntimePod is replaced even by nil, since an update with a spec is the
// better source.
func (k *known) merge(u *Update) {
	k.runtime = u.RuntimePod
	if u.Pod != nil {
		k.pod = u.Pod
	}
}

// prepare fills t.turn, the stage and the argument of the syncer's next call.
func (t *transition) prepare(kind UpdateType) {
	t.turn = turn{t.stage.kind(), Work{
		Type: kind, Life: t.life, Pod: t.told.pod, RuntimePod: t.told.runtime, NewerThan: t.newerThan, Evicted: t.why.evicted,
	}}
	if t.turn.kind == Sync {
		return
	}
	w := &t.turn.work
	// The bounded slice keeps later causes out of the array that the syncer
	// reads without a lock.
	w.Causes = t.end.causes[:len(t.end.causes):len(t.end.causes)]
	// The pointer is to a copy: the grace may shrink while the syncer reads it.
	if t.end.grace > 0 {
		grace := t.end.grace
		w.GracePeriodSeconds = &grace
	}
}

// returned records the end of a call. If the call changed the runtime, or may have, newerThan
// becomes the current time, so that the next call does not use an older observation.
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

// succeeded moves the pod to its next stage after a call without an error.
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

// goOn says what the worker does next. Each call that returns leads to exactly one call of goOn.
func (t *transition) goOn(how then) { t.emit(next{how}) }

// finish moves the pod to the stage finished. The pod stays known until SyncKnownPods drops it, so
// that late updates are recognised.
func (t *transition) finish() {
	t.stage = finished
	t.pending, t.news = Update{}, false
	t.end.causes, t.waitFor = nil, ""
	t.closeDone()
	t.freeName()
	t.emit(over{})
}

// forget drops a pod. If next is not nil, a new pod with the same UID is added from this update.
func (t *transition) forget(next *Update) {
	t.stage, t.pending, t.news = finished, Update{}, false
	t.closeDone()
	t.freeName()
	t.emit(forget{next})
}

// freeName gives up the pod's full name, or its place in the queue for the name. A second call does
// nothing.
func (t *transition) freeName() {
	if t.claim == inLine || t.claim == owner {
		t.claim = freed
		t.emit(freeName{})
	}
}

// resynced makes the pod's worker call the syncer with the pending update. If none is pending,
// the syncer gets the arguments of its last call again.
func (t *transition) resynced() {
	if t.stage != finished && t.activity != held {
		t.emit(again{})
	}
}

// unwanted ends a pod that is not wanted any more. A pod for which the syncer was never called is
// dropped.
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

// closeDone closes all Done channels of the pod, and clears the list so that each is closed once.
func (t *transition) closeDone() {
	for _, d := range t.end.done {
		t.emit(notify{d})
	}
	t.end.done = nil
}

// refuse closes the Done channel of an update that ends nothing, so that its caller does not wait
// for ever.
func (t *transition) refuse(k *KillOptions) {
	if k != nil && k.Done != nil {
		t.emit(notify{k.Done})
	}
}

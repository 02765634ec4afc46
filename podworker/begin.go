package podworker

import (
	"time"

	"github.com/nodewright/nodewright/podmeta"
)

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

// join has an update take the place of the one that waits, and reports whether
// it did: of most that come while the syncer is busy nothing else follows, and
// they need no clock. What join takes, step would have taken with the same
// end and no effect.
func (s *state) join(u *Update) bool {
	switch {
	case !s.news || s.stage != live || s.restart != nil || s.activity == held,
		u.Type == KillUpdate || u.Pod == nil || u.Kill != nil,
		u.Pod.DeletionTimestamp != nil || podmeta.IsTerminal(u.Pod.Status.Phase):
		return false
	}
	start := earliest(s.pending.Start, u.Start)
	s.pending = *u
	s.pending.Start = start
	return true
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
	if !t.in.open {
		return
	}
	switch t.stage.kind() {
	case Terminated:
		// Nothing of it runs: it keeps others of its name out, but is not
		// kept out by them.
		t.emit(claimName)
		t.release()
	case Terminating:
		// It never ran. There is nothing to end, but whoever asked for its
		// end wants to hear of it, and to have the status say so.
		if len(t.end.funcs) > 0 {
			t.release()
			return
		}
		t.stage = stopped
		t.emit(countGone)
		t.finish()
	default:
		t.emit(claimName)
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
	t.emit(deliver).interrupt = interrupt
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
	t.activity, t.since = calling, t.in.now
	t.prepare(why)
	t.emit(call)
}

// countBegin has the metrics count an update, and the pod's containers with its
// first.
func (t *transition) countBegin(u *Update) {
	if !t.activity.began() && u.Pod != nil {
		t.emit(countBegin).count = len(u.Pod.Spec.Containers)
	}
	if !u.Start.IsZero() {
		t.emit(countStart).age = t.in.now.Sub(u.Start)
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
	if u.MirrorPod != nil {
		k.mirror = u.MirrorPod
	}
}

// prepare makes the turn: what the syncer is called for, and with.
func (t *transition) prepare(why UpdateType) {
	t.turn.kind = t.stage.kind()
	w := &t.turn.work
	*w = Work{}
	w.Type, w.Pod, w.MirrorPod, w.RuntimePod = why, t.told.pod, t.told.mirror, t.told.runtime
	w.NewerThan, w.Evicted = t.newerThan, t.why.evicted
	if t.turn.kind == Sync {
		return
	}
	// The bounded slice keeps later functions out of the array that the syncer
	// reads without a lock.
	w.StatusFuncs = t.end.funcs[:len(t.end.funcs):len(t.end.funcs)]
	// Of a copy: the grace may shrink while the syncer reads it.
	if t.end.grace > 0 {
		grace := t.end.grace
		w.GracePeriodSeconds = &grace
	}
}

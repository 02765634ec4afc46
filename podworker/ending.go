package podworker

import "github.com/nodewright/nodewright/podmeta"

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
	if u.Type == KillUpdate && u.Kill != nil && u.Kill.Evict {
		t.why.evicted = true
	}
	if !end || t.stage > live {
		return false
	}
	t.stage, t.end.at = ending, t.in.now
	return true
}

// collectKill adds an update's options to those of a pod that terminates and
// reports whether it has less time now. Status functions apply in the order in
// which they came; Done is closed even if the pod has nothing to stop.
func (t *transition) collectKill(u *Update, became bool) (shortened bool) {
	var override *int64
	if k := u.Kill; k != nil {
		if k.Done != nil {
			t.end.done = append(t.end.done, k.Done)
		}
		if k.Status != nil {
			t.end.funcs = append(t.end.funcs, k.Status)
		}
		override = k.GracePeriodSeconds
	}
	// An update of the runtime alone bears no spec.
	pod := u.Pod
	if pod == nil {
		pod = t.newest()
	}
	if !became && t.end.grace == 0 { // it ended by itself, with the time of its spec
		t.end.grace, _ = effectiveGrace(0, t.newest(), nil)
	}
	t.end.grace, shortened = effectiveGrace(t.end.grace, pod, override)
	return shortened
}

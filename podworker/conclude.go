package podworker

// returned notes the end of a call. A call that acted on the runtime, or may
// have, moves newerThan on, so that the next one does not decide by what was
// observed before.
func (t *transition) returned(r *result) {
	if t.activity != calling {
		return
	}
	during := t.turn.kind
	t.activity, t.since = resting, t.in.now
	if r.err != nil || r.outcome.Acted || during != Sync {
		t.newerThan = t.in.now
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
	case during == Terminated:
		t.goOn(atRest)
		t.finish()
	case during == Terminating && t.told.runtime != nil:
		t.goOn(atRest)
		t.forget()
	// Containers are proven stopped: who waits for that hears of it before the
	// clean-up, which may take long or fail.
	case during == Terminating:
		t.stage = stopped
		t.closeDone()
		t.goOn(nextCall)
	case terminal:
		if t.stage == live {
			t.end.at = t.in.now
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
func (t *transition) goOn(how then) { t.emit(next).then = how }

// finish closes a pod's life. It stays known, so that late updates are
// recognised, until it is unwanted.
func (t *transition) finish() {
	t.stage = finished
	t.pending, t.news = Update{}, false
	t.end.funcs, t.waitFor = nil, ""
	t.closeDone()
	t.freeName()
	if t.restart != nil {
		t.forget()
	}
}

// forget drops a pod, and begins its next life if one was asked for.
func (t *transition) forget() {
	t.stage, t.pending, t.news = finished, Update{}, false
	t.closeDone()
	t.freeName()
	t.emit(forget).restart = t.restart
	t.restart = nil
}

// freeName gives up the pod's name, or its place in line for it. It does
// nothing the second time.
func (t *transition) freeName() {
	if t.claim == inLine || t.claim == owner {
		t.claim = freed
		t.emit(freeName)
	}
}

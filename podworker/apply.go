package podworker

import (
	"context"
	"fmt"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podworker/serial"
)

// apply does what the core wants done, but for what concerns a call, which is
// the business of begin and end. The workers are locked. None of it blocks:
// channels are closed, and the workers only take note.
func (m *Manager) apply() {
	workers := m.workers.Locked()
	for i := range m.core.fx {
		switch e := &m.core.fx[i]; e.action {
		case deliver:
			workers.Update(e.pod.uid, e.pod)
			if e.interrupt {
				workers.Interrupt(e.pod.uid)
			}
		case again:
			if e.interrupt {
				workers.Interrupt(e.pod.uid)
			} else {
				workers.Again(e.pod.uid)
			}
		case forget:
			workers.Forget(e.pod.uid)
		// The core hands out each channel once, so that none is closed twice.
		case notify:
			close(e.done)
		case countBegin:
			m.met.containers.Observe(float64(e.count))
		case countStart:
			m.met.start.Observe(e.age.Seconds())
		case countGone:
			m.met.took(Terminated, SyncUpdate, 0)
		}
	}
	m.core.reset()
}

// workerCall is one call of a pod's worker. Its Update is the pod itself, of
// which the core has the state: updates of a pod never queue in the worker.
type workerCall = serial.Call[types.UID, *pod]

// begin makes the pod's turn, and reports whether the syncer is to be called.
// It is called with the workers locked. A turn that has nothing to call for,
// such as that of a pod that has finished meanwhile, ends at once.
func (m *Manager) begin(c *workerCall) (ok bool) {
	m.core.feed(c.Update, m.core.input(begun, c.Start))
	for i := range m.core.fx {
		ok = ok || m.core.fx[i].action == call
	}
	m.apply()
	return ok
}

// handle takes the pod's turn; end says what is next. It is little, so that the
// first stack of a goroutine is enough for it; a panic is the worker's
// business. It runs in the worker's goroutine without a lock. The turn does not
// change meanwhile: only begun writes it, and calls of a pod never overlap.
func (m *Manager) handle(ctx context.Context, c *workerCall) (_ serial.Next, err error) {
	s, p := m.cfg.Syncer, c.Update
	t := &p.turn
	switch {
	case t.kind == Terminated:
		err = s.SyncTerminatedPod(ctx, t.work)
	case t.kind == Terminating && t.work.RuntimePod != nil:
		err = s.SyncTerminatingRuntimePod(ctx, t.work)
	case t.kind == Terminating:
		err = s.SyncTerminatingPod(ctx, t.work)
	default:
		p.outcome, err = s.SyncPod(ctx, t.work)
	}
	return serial.Rest(), err
}

// called counts a call, while nobody waits for the lock. It runs in the
// worker's goroutine, before the lock is taken for end.
func (m *Manager) called(c *workerCall, r *serial.Result) {
	t := &c.Update.turn
	m.met.took(t.kind, t.work.Type, r.At.Sub(c.Start))
}

// end notes what came of a call, and says how the worker goes on. It is called
// with the workers locked.
func (m *Manager) end(c *workerCall, r *serial.Result) {
	p := c.Update
	// Taken before the outcome is cleared: the next call must not see it, and it
	// holds on to memory of the syncer.
	after := p.outcome.After
	in := m.core.input(returned, r.At)
	in.result.outcome, in.result.err = p.outcome, r.Err
	p.outcome = Outcome{}
	m.core.feed(p, in)
	how := atRest
	for i := range m.core.fx {
		if e := &m.core.fx[i]; e.action == next && e.pod == p {
			how = e.then
		}
	}
	m.apply()
	m.logPanic("syncer panicked", r.Err)
	switch {
	case how == resync:
		r.Next = serial.Again(m.jitter(m.cfg.Resync), "resync")
	case how == nextCall:
		r.Next = serial.Again(0, "")
	// An interrupted call failed because it was told to stop; the update that did
	// so leads to the next call at once, without a back-off.
	case how == retry && !r.Interrupted && m.ctx.Err() == nil:
		r.Next = m.failed(p, r, c.Failures+1)
	}
	// After the lock has been given back: the syncer may call the Manager from it.
	if after != nil {
		r.Next = r.Next.Then(func() { m.after(after) })
	}
}

// after calls what a syncer wants called after a call.
func (m *Manager) after(fn func()) {
	var err error
	defer func() { m.logPanic("syncer panicked after a sync", err) }()
	defer serial.Recover(&err)
	fn()
}

// logPanic logs a panic with its stack, which the error's text does not have.
// Errors of other kinds are logged elsewhere.
func (m *Manager) logPanic(message string, err error) {
	if p, ok := err.(*serial.PanicError); ok { //nolint:errorlint // of Recover, as it is
		m.cfg.Log.Error(message, zap.String("panic", fmt.Sprint(p.Value)), zap.ByteString("stack", p.Stack))
	}
}

// failed returns when a call is tried again. Failures in a row are warnings at
// powers of two, so that a pod that fails for days does not fill the log.
func (m *Manager) failed(p *pod, r *serial.Result, failures int) serial.Next {
	delay, reason := m.retry(failures, r.Err, r.At)
	log := m.cfg.Log.Debug
	if failures&(failures-1) == 0 { // the 1st, 2nd, 4th, 8th ...
		log = m.cfg.Log.Warn
	}
	log("pod sync failed", zap.Int("failures", failures), zap.String("pod", p.namespace+"/"+p.name), zap.String("uid", string(p.uid)),
		zap.Stringer("stage", p.turn.kind), zap.Duration("retry", delay), zap.String("reason", reason), zap.Error(r.Err))
	return serial.Again(delay, reason)
}

package statusmgr

import (
	"math/rand/v2"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podmeta"
)

// The link between the state machine and the world: timers, slots, goroutines of
// writes. Functions here are called with m.mu held, but for publish and handle,
// which belong to the goroutine that calls the sink.

// newEntry returns the entry of a pod that had none. The caller holds m.mu.
func (m *Manager) newEntry(uid types.UID) *entry {
	e := &entry{}
	m.entries[uid] = e
	switch {
	case m.cfg.Sink == nil || m.ctx == nil:
		e.stage = inactive
	// A pod was forgotten and came back under the same UID while its last status is
	// being written: two writes of one pod must not overlap.
	case m.queue.busy[uid]:
		e.stage = blocked
	default:
		e.stage = idle
	}
	return e
}

// facts returns the values of state.final and state.deletion. A mirror pod is never deleted here:
// the component that created it deletes it with its static pod. The caller holds m.mu.
func (e *entry) facts() (final, deletion bool) {
	terminal := podmeta.IsTerminal(e.status.Phase)
	return e.finished || terminal, e.finished && terminal && e.pod.DeletionTimestamp != nil && !podmeta.IsMirror(e.pod)
}

// refresh applies the event onRefresh to e if a new pod object or an equal status changes final,
// deletion or unsure. The caller holds m.mu.
func (m *Manager) refresh(e *entry) {
	if final, deletion := e.facts(); final != e.final || deletion != e.deletion || e.unsure {
		m.advance(e, input{event: onRefresh, final: final, deletion: deletion})
	}
}

// advance applies an event to e and executes the effects. The caller holds m.mu.
func (m *Manager) advance(e *entry, in input) {
	if do := e.step(in, m.delays); do != (effects{}) {
		m.carryOut(e, do)
	}
}

// carryOut executes the effects on the timer, the store and the queue. Once Run's context has
// ended, it arms no timer and queues nothing. The caller holds m.mu.
func (m *Manager) carryOut(e *entry, do effects) {
	if do.disarm && e.retry != nil {
		e.retry.Stop()
		e.retry = nil
	}
	if do.save {
		m.saveSoon(e.pod.UID)
	}
	if do.retry > 0 && m.ctx.Err() == nil {
		m.arm(e, do.retry)
	}
	if do.queue != none && m.ctx.Err() == nil {
		m.queue.put(e, do.queue)
		m.dispatch()
	}
}

// arm starts e's retry timer. The caller holds m.mu. A stopped timer's callback may already wait
// for the lock, so the callback checks that e.retry is still its timer.
func (m *Manager) arm(e *entry, delay time.Duration) {
	var t *time.Timer
	t = time.AfterFunc(delay, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if e.retry == t { // and was not stopped too late
			e.retry = nil
			m.advance(e, input{event: onTimer})
		}
	})
	e.retry = t
}

// dispatch begins writes of queued pods while there are free slots. The caller holds m.mu.
func (m *Manager) dispatch() {
	for m.queue.free > 0 && m.ctx.Err() == nil {
		e, c := m.queue.next()
		if e == nil {
			return
		}
		// The state before the step: it has the time since when the change waits.
		before := e.state
		if do := e.step(input{event: onGrant}, m.delays); !do.begin {
			continue // it was removed, or has nothing to publish any more
		}
		m.queue.begin(e, c)
		w := &write{e: e, class: c, before: before, pod: e.pod, status: e.status, shown: e.shown, runs: e.runs, finished: e.finished, sent: e.sent, sentTo: e.sentTo}
		m.wg.Add(1)
		go m.publish(w)
	}
}

// publish makes the calls of the sink for one pod. It runs in its own goroutine, for which Run
// waits. There are at most Config.Parallel of them.
func (m *Manager) publish(w *write) {
	defer m.wg.Done()
	// A final status is on disk before anybody hears of it: after a crash it is
	// published again and not computed anew. The disk holds up this pod's write
	// alone.
	m.save(w.pod.UID)
	e := w.e
	// A sink that hangs may hang until the power goes: the status is stored
	// meanwhile.
	slow := time.AfterFunc(slowWrite, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.advance(e, input{event: onSlow})
	})
	defer slow.Stop()
	m.calls(w)
}

// handle applies the result of a call for w. remove reports that the deletion has to follow;
// otherwise the write has ended.
func (m *Manager) handle(w *write, r result) (remove bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.sent != nil {
		// Also for a pod that was dropped meanwhile: the entry is nobody else's.
		w.e.sent, w.e.sentTo = r.sent, r.sentTo
	}
	do := w.e.step(r.input, m.delays)
	if do.observe {
		m.met.sync.Observe(time.Since(w.before.since).Seconds())
	}
	if do.deletePod {
		return true
	}
	m.end(w, do, r.err)
	return false
}

// end frees the slot of w. err is the failure of w, or nil. The caller holds m.mu.
func (m *Manager) end(w *write, do effects, err error) {
	e := w.e
	m.queue.end(e, w.class) // first, so that e may begin again
	if do.spread {
		do.retry += time.Duration(rand.Float64() * 0.5 * float64(do.retry))
	}
	m.carryOut(e, do)
	if err != nil && do.retry > 0 && m.ctx.Err() == nil {
		m.cfg.Log.Warn("failed to publish status", zap.String("pod", e.pod.Namespace+"/"+e.pod.Name),
			zap.Duration("retry", do.retry), zap.Error(err))
	}
	if next := m.entries[e.pod.UID]; next != nil && next != e {
		m.advance(next, input{event: onRelease})
	}
	m.dispatch()
}

// Writes returns how many statuses are being written to the sink, how many may be at a time
// (Config.Parallel), and how many pods wait for their write.
func (m *Manager) Writes() (running, limit, waiting int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.entries {
		if e.class != none {
			waiting++
		}
	}
	return len(m.queue.busy), m.cfg.Parallel, waiting
}

package statusmgr

import (
	"context"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podmeta"
)

// publishQueue holds the pods that the sink has something to be told of.
type publishQueue struct {
	free           int
	busy           map[types.UID]bool // a call of the sink is under way
	urgent, others []*entry
}

// enqueue has e published, unless it is, or waits after a failure.
func (m *Manager) enqueue(e *entry) {
	if m.cfg.Sink == nil || m.ctx == nil || m.ctx.Err() != nil || m.queue.busy[e.pod.UID] || e.queued || e.retry != nil || !e.pending() {
		return
	}
	e.queued = true
	if e.urgent {
		m.queue.urgent = append(m.queue.urgent, e)
	} else {
		m.queue.others = append(m.queue.others, e)
	}
	m.dispatch()
}

// pending tells whether the sink has something to be told.
func (e *entry) pending() bool { return e.version > e.published || e.deletable() }

// deletable tells that the pod was to be deleted, and can be.
func (e *entry) deletable() bool {
	return e.finished && !e.deleted && e.pod.DeletionTimestamp != nil && podmeta.IsTerminal(e.status.Phase) && !podmeta.IsMirror(e.pod)
}

// dispatch begins as many writes as there is room for.
func (m *Manager) dispatch() {
	for m.queue.free > 0 && m.ctx.Err() == nil {
		var e *entry
		switch {
		case len(m.queue.urgent) > 0:
			e, m.queue.urgent = m.queue.urgent[0], m.queue.urgent[1:]
		case len(m.queue.others) > 0:
			e, m.queue.others = m.queue.others[0], m.queue.others[1:]
		default:
			return
		}
		e.queued = false
		if m.entries[e.pod.UID] != e || !e.pending() {
			continue
		}
		m.queue.free--
		m.queue.busy[e.pod.UID] = true
		w := write{e: e, pod: e.pod, status: e.status, finished: e.finished, version: e.version, since: e.since}
		e.urgent, e.since = false, time.Time{}
		m.wg.Add(1)
		go m.publish(w)
	}
}

// write is what one pod's calls of the sink are about.
type write struct {
	e        *entry
	pod      *v1.Pod
	status   *v1.PodStatus
	finished bool
	version  uint64
	since    time.Time
}

// publish makes the calls for one pod.
func (m *Manager) publish(w write) {
	defer m.wg.Done()
	ctx, cancel := context.WithTimeout(m.ctx, m.cfg.Timeout)
	defer cancel()
	err := m.cfg.Sink.Update(ctx, w.pod, m.publishable(w))
	if m.updated(w, err) {
		err = m.cfg.Sink.Delete(ctx, w.pod)
		m.mu.Lock()
		w.e.deleted = err == nil
		m.mu.Unlock()
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.queue.busy, w.pod.UID)
	m.queue.free++
	if err != nil {
		m.failed(w.e, err)
	} else {
		w.e.failures = 0
	}
	if e := m.entries[w.pod.UID]; e != nil { // not w.e, if that was dropped meanwhile
		m.enqueue(e)
	}
	m.dispatch()
}

// updated notes what became of an update, and tells whether the pod can be
// deleted.
func (m *Manager) updated(w write, err error) (remove bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		if !w.since.IsZero() {
			w.e.since = w.since
		}
		return false
	}
	w.e.published = w.version
	if !w.since.IsZero() {
		m.met.sync.Observe(time.Since(w.since).Seconds())
	}
	return w.e.version == w.version && w.e.deletable()
}

// publishable is a status with its terminal phase held back while containers
// may run.
func (m *Manager) publishable(w write) v1.PodStatus {
	pod, st := w.pod, w.status
	if w.finished || !podmeta.IsTerminal(st.Phase) || podmeta.IsTerminal(pod.Status.Phase) || !m.cfg.CouldHaveRunning(pod.UID) {
		return *st
	}
	held := *st
	held.Phase, held.Reason, held.Message = pod.Status.Phase, pod.Status.Reason, pod.Status.Message
	if held.Phase == "" {
		held.Phase = v1.PodRunning
	}
	return held
}

// failed has the write tried again, later each time.
func (m *Manager) failed(e *entry, err error) {
	if m.ctx.Err() != nil || m.entries[e.pod.UID] != e {
		return
	}
	delay := min(m.cfg.Backoff<<min(e.failures, 16), m.cfg.MaxBackoff)
	delay += time.Duration(rand.Float64() * 0.5 * float64(delay))
	e.failures++
	m.cfg.Log.Warn("status was not published", zap.String("pod", e.pod.Namespace+"/"+e.pod.Name),
		zap.Duration("retry", delay), zap.Error(err))
	e.retry = time.AfterFunc(delay, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		e.retry = nil
		if m.entries[e.pod.UID] == e {
			m.enqueue(e)
		}
	})
}

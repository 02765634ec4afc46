package statusmgr

import (
	"context"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmeta"
)

// publishQueue holds the pods that the sink has something to be told of.
type publishQueue struct {
	free           int
	urgent, others []*entry
}

// enqueue has e published, unless it is, or waits after a failure.
func (m *Manager) enqueue(e *entry) {
	if m.cfg.Sink == nil || m.ctx == nil || m.ctx.Err() != nil || e.busy || e.queued || e.failures > 0 || !e.pending() {
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
	for m.queue.free > 0 {
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
		e.busy, e.urgent = true, false
		m.wg.Add(1)
		go m.publish(e, e.pod, e.status, e.version)
	}
}

// publish makes the calls for one pod.
func (m *Manager) publish(e *entry, pod *v1.Pod, st *v1.PodStatus, version uint64) {
	defer m.wg.Done()
	ctx, cancel := context.WithTimeout(m.ctx, m.cfg.Timeout)
	defer cancel()
	err := m.cfg.Sink.Update(ctx, pod, m.publishable(pod, st))

	m.mu.Lock()
	if err == nil {
		e.published = version
		if !e.since.IsZero() {
			m.met.sync.Observe(time.Since(e.since).Seconds())
			e.since = time.Time{}
		}
	}
	remove := err == nil && e.deletable() && e.version == version
	m.mu.Unlock()
	if remove {
		err = m.cfg.Sink.Delete(ctx, pod)
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	e.deleted = e.deleted || remove && err == nil
	e.busy = false
	m.queue.free++
	if err != nil {
		m.failed(e, err)
	} else {
		e.failures = 0
		m.enqueue(e)
	}
	m.dispatch()
}

// publishable is a status with its terminal phase held back while containers
// may run.
func (m *Manager) publishable(pod *v1.Pod, st *v1.PodStatus) v1.PodStatus {
	if !podmeta.IsTerminal(st.Phase) || podmeta.IsTerminal(pod.Status.Phase) || !m.cfg.CouldHaveRunning(pod.UID) {
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
	if m.ctx.Err() != nil {
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
		n := e.failures
		e.failures = 0
		m.enqueue(e)
		e.failures = n
	})
}

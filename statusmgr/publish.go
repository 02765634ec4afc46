package statusmgr

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podmeta"
)

// longWrite is how long a write may last before its status is stored.
const longWrite = time.Second

// unsent tells whether the sink has something to be told.
func (e *entry) unsent() bool { return e.version > e.published || e.held || e.deletable() }

// pending tells whether it can be told.
func (e *entry) pending() bool { return e.unsent() && !e.homeless }

// deletable tells that the pod was to be deleted, and is over. Mirrors belong
// to whoever made them.
func (e *entry) deletable() bool {
	return e.finished && !e.deleted && e.pod.DeletionTimestamp != nil && podmeta.IsTerminal(e.status.Phase) &&
		!e.mirrored && !podmeta.IsMirror(e.pod)
}

// enqueue has e published, unless it is, or waits after a failure.
func (m *Manager) enqueue(e *entry) {
	if m.cfg.Sink == nil || m.ctx == nil || m.ctx.Err() != nil || m.queue.busy[e.pod.UID] || !e.pending() {
		return
	}
	if e.retry != nil {
		if !e.patient || e.version == e.published && !e.asked {
			return
		}
		e.retry.Stop()
		e.retry = nil
	}
	m.queue.put(e)
	m.dispatch()
}

// dispatch begins as many writes as there is room for.
func (m *Manager) dispatch() {
	for m.queue.free > 0 && m.ctx.Err() == nil {
		e, c := m.queue.next()
		if e == nil {
			return
		}
		if m.entries[e.pod.UID] != e || !e.pending() {
			continue
		}
		m.queue.begin(e, c)
		w := write{
			e: e, class: c, pod: e.pod, status: e.status, finished: e.finished, version: e.version, since: e.since,
			news: e.version > e.published, unsure: e.unsure, held: e.held, shown: e.shown, shownAs: e.shownAs,
		}
		e.urgent, e.asked, e.since = false, false, time.Time{}
		m.wg.Add(1)
		go m.publish(w)
	}
}

// write is what one pod's calls of the sink are about.
type write struct {
	e        *entry
	class    class
	pod      *v1.Pod
	status   *v1.PodStatus
	finished bool
	version  uint64
	since    time.Time
	news     bool // the sink does not have this version
	unsure   bool // what it has may not be what was shown

	held    bool // of the last write
	shown   *v1.PodStatus
	shownAs types.UID
}

// outcome is what became of a write that did not fail.
type outcome int

const (
	done outcome = iota
	homeless
	waiting // for containers or resources
)

// publish makes the calls for one pod.
func (m *Manager) publish(w write) {
	defer m.wg.Done()
	uid := w.pod.UID
	m.save(uid)
	long := time.AfterFunc(longWrite, func() { m.trouble(w.e) })
	ctx, cancel := context.WithTimeout(m.ctx, m.cfg.Timeout)
	defer cancel()
	out, err := m.tell(ctx, &w)
	long.Stop()

	m.mu.Lock()
	m.queue.end(w.e, w.class)
	e := w.e
	switch {
	case err != nil:
		if e.since.IsZero() || !w.since.IsZero() {
			e.since = w.since
		}
		e.troubled = true
		m.failed(e, err)
	default:
		e.failures, e.troubled = 0, false
		e.homeless = out == homeless && e.version == w.version && !e.asked
		if out == homeless {
			e.since = w.since
		}
		if out == waiting && !e.asked && m.entries[uid] == e {
			m.later(e, min(m.cfg.Backoff<<min(e.waits, 16), m.cfg.MaxBackoff), true)
			e.waits++
		}
	}
	m.saveSoon(uid)
	if e := m.entries[uid]; e != nil { // not w.e, if that was dropped meanwhile
		m.enqueue(e)
	}
	m.dispatch()
	m.mu.Unlock()
}

// tell makes the calls: an update if there is news, and the deletion once it
// is due.
func (m *Manager) tell(ctx context.Context, w *write) (outcome, error) {
	as, ok := m.cfg.PublishAs(w.pod)
	if !ok {
		return homeless, nil
	}
	st, held := m.publishable(w, as)
	if w.news || w.held != held || as.UID != w.shownAs {
		var err error
		if w.unsure || w.shown == nil || as.UID != w.shownAs || !saysSame(w.shown, &st) {
			err = m.cfg.Sink.Update(ctx, as, st)
		}
		if err != nil && !errors.Is(err, ErrGone) {
			m.mu.Lock()
			w.e.unsure = true // it may have been done all the same
			m.mu.Unlock()
			return done, err
		}
		m.updated(w, as, st, held, err != nil)
	}
	m.mu.Lock()
	remove := w.e.version == w.version && w.e.deletable()
	m.mu.Unlock()
	if !remove {
		if held {
			return waiting, nil
		}
		return done, nil
	}
	if !m.cfg.Reclaimed(w.pod.UID) {
		return waiting, nil
	}
	if err := m.cfg.Sink.Delete(ctx, as); err != nil && !errors.Is(err, ErrGone) {
		return done, err
	}
	m.mu.Lock()
	w.e.deleted = true
	m.mu.Unlock()
	return done, nil
}

// updated notes what the sink has.
func (m *Manager) updated(w *write, as *v1.Pod, st v1.PodStatus, held, gone bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := w.e
	e.published, e.shown, e.shownAs, e.mirrored, e.held = w.version, &st, as.UID, podmeta.IsMirror(as), held
	e.unsure = gone
	if gone {
		e.held, e.deleted = false, true
	}
	if !w.since.IsZero() {
		m.met.sync.Observe(time.Since(w.since).Seconds())
		w.since = time.Time{}
	}
}

// publishable is what the sink gets, and whether a terminal phase is held back
// because containers may run.
func (m *Manager) publishable(w *write, as *v1.Pod) (st v1.PodStatus, held bool) {
	api := as.Status
	if api.Phase == "" {
		api = soleWriter(w)
	}
	running := !w.finished && podmeta.IsTerminal(w.status.Phase) && m.cfg.CouldHaveRunning(w.pod.UID)
	st = Merge(api, *w.status, running)
	return st, podmeta.IsTerminal(w.status.Phase) && !podmeta.IsTerminal(st.Phase)
}

// soleWriter is the published status where nobody else writes it: what was
// published, and of what is others', what the new status says.
func soleWriter(w *write) v1.PodStatus {
	var api v1.PodStatus
	if w.shown != nil {
		api = *w.shown
	}
	if api.Phase == "" {
		api.Phase = v1.PodRunning
	}
	api.Conditions = nil
	for _, c := range w.status.Conditions {
		if !isOurs(c.Type) {
			api.Conditions = append(api.Conditions, c)
		}
	}
	if w.shown != nil {
		if c := find(w.shown.Conditions, v1.DisruptionTarget); c != nil {
			api.Conditions = append(api.Conditions, *c)
		}
	}
	api.ResourceClaimStatuses = w.status.ResourceClaimStatuses
	api.ExtendedResourceClaimStatus = w.status.ExtendedResourceClaimStatus
	api.NodeAllocatableResourceClaimStatuses = w.status.NodeAllocatableResourceClaimStatuses
	return api
}

// trouble notes that a write takes long.
func (m *Manager) trouble(e *entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.queue.busy[e.pod.UID] {
		e.troubled = true
		m.saveSoon(e.pod.UID)
	}
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
	m.later(e, delay, false)
}

// later has e looked at again.
func (m *Manager) later(e *entry, delay time.Duration, patient bool) {
	var t *time.Timer
	t = time.AfterFunc(delay, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if e.retry != t {
			return
		}
		e.retry = nil
		if m.entries[e.pod.UID] == e {
			m.enqueue(e)
		}
	})
	e.retry, e.patient = t, patient
}

package pleg

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/internal/retry"
)

// The two sources of changes: the list of all pods, which misses nothing but costs more with
// more pods, and the event stream, which is cheap but may lose events.

// lateEvent is the delay, or step back in time, of an event after which the stream counts as
// unreliable.
const lateEvent = 2 * time.Second

// relistPause is the shortest time between two relists, for a stream that keeps breaking.
const relistPause = 100 * time.Millisecond

// relists makes a relist now and one after every interval until ctx ends.
func (m *Manager) relists(ctx context.Context) {
	// Counted from the beginning of a relist.
	last := time.Now()
	m.relist(ctx)
	t := time.NewTimer(m.untilNext())
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.kick:
			if wait := relistPause - time.Since(last); wait > 0 {
				t.Reset(wait)
				continue
			}
		case <-t.C:
		}
		last = time.Now()
		m.relist(ctx)
		t.Reset(m.untilNext())
	}
}

// untilNext returns the time to the next relist. While lists fail it is the short interval, even
// with an open stream.
func (m *Manager) untilNext() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.streaming || !m.failingSince.IsZero() {
		return minRelist
	}
	return m.interval
}

// relistNow requests a relist at once.
func (m *Manager) relistNow() {
	m.kick.Set()
}

// relist compares the runtime's list with the records and inspects every pod that differs. A
// failed list changes only the health: the pods stay known.
func (m *Manager) relist(ctx context.Context) {
	began := time.Now()
	m.mu.Lock()
	if !m.listedAt.IsZero() {
		m.met.interval.Observe(began.Sub(m.listedAt).Seconds())
	}
	// Set before the call: a list that hangs counts from its beginning.
	if m.failingSince.IsZero() {
		m.failingSince = began
	}
	m.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	// Without the lock: events and queries go on meanwhile.
	pods, err := m.cfg.Runtime.List(ctx)
	cancel()
	defer func() { m.met.duration.Observe(time.Since(began).Seconds()) }()

	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		// The first failure in a row is logged, and the end of them.
		if m.listErr == nil && m.ctx.Err() == nil {
			m.cfg.Log.Warn("failed to list pods of runtime", zap.Error(err))
		}
		m.listErr = err
		return
	}
	if m.listErr != nil {
		m.cfg.Log.Info("runtime lists pods again")
	}
	m.failingSince, m.listErr = time.Time{}, nil
	first := m.listedAt.IsZero()
	m.listedAt = began
	missed := m.compare(pods, began)
	switch {
	// The stream missed a change, so it is not trusted for now.
	case missed > 0 && !first && m.streaming:
		m.interval = minRelist
	case m.streaming:
		m.interval = min(2*m.interval, maxRelist)
	}
	if first {
		close(m.listed)
	}
}

// compare finds the differences between a list and the records, and returns the number of those
// without an event. began is the start of the list: later inspections are newer than the list.
// Called with m.mu held.
func (m *Manager) compare(pods []observed.Listed, began time.Time) (missed int) {
	m.met.round++
	round := m.met.round
	for i := range pods {
		l := &pods[i]
		var r *record
		if i < len(m.order) && m.order[i].uid == l.UID && !m.order[i].dropped {
			r = m.order[i]
		} else if r = m.records[l.UID]; r == nil {
			r = m.addRecord(l.UID)
		}
		if i < len(m.order) {
			m.order[i] = r
		} else {
			m.order = append(m.order, r)
		}
		r.round = round
		switch {
		// Inspected since: the list is older.
		case !r.at.Before(began):
			continue
		case r.err == nil && same(r.items, l):
			r.denied, r.denials = nil, 0
			if r.flight == nil {
				r.matched = began
			}
			continue
		case r.err != nil && r.flight == nil:
			continue // its retry is due in its own time
		case r.pod != nil && r.flight == nil && !r.dirty && !r.mayDeny(l, began):
			continue
		}
		// View returns the hint until the first inspection ends. At the start, with hundreds of
		// pods, that may take long.
		if r.pod == nil {
			r.hint = hintOf(l)
			r.namespace, r.name = l.Namespace, l.Name
		}
		if r.flight == nil && !r.dirty {
			missed++
		}
		m.look(r)
	}
	// Pointers beyond the end would keep records of pods that are gone.
	clear(m.order[len(pods):])
	m.order = m.order[:len(pods)]
	// Each listed pod has a record by now: with equal numbers none is left over.
	if len(m.records) != len(pods) {
		for _, r := range m.records {
			switch {
			case r.round == round || !r.at.Before(began):
			case r.flight != nil:
				m.look(r) // it may have begun too early to see the end
			case r.held > 0 && r.dirty:
				// It may have begun too late for the list to have it.
			default:
				if r.exists() && !r.dirty {
					missed++
				}
				m.gone(r, began)
			}
		}
	}
	return missed
}

// stream keeps the event stream open until ctx ends or there is none to open. A
// stream that ends is opened again after a pause with jitter, and a relist finds
// what it may have missed.
func (m *Manager) stream(ctx context.Context) {
	delay := retry.Backoff{First: 200 * time.Millisecond, Max: 30 * time.Second, Jitter: 0.5}
	for {
		opened := time.Time{}
		err := m.cfg.Runtime.Events(ctx, func() {
			opened = time.Now()
			m.streamOpen()
		}, m.onEvent)
		m.mu.Lock()
		// Relists are frequent again from the next one on.
		m.streaming = false
		m.mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		none := errors.Is(err, observed.ErrNoEventStream)
		if !none || !opened.IsZero() {
			m.relistNow()
		}
		if none {
			m.cfg.Log.Info("runtime has no event stream; listing pods at an interval instead",
				zap.Duration("interval", minRelist))
			return
		}
		m.met.streamErrors.Inc()
		if !opened.IsZero() {
			delay.Recovered(time.Since(opened))
		}
		if !delay.Failing() {
			m.cfg.Log.Warn("event stream ended", zap.Error(err))
		}
		if !delay.Wait(ctx) {
			return
		}
	}
}

// streamOpen makes a relist, for changes while there was no stream, and another soon after: a
// runtime may take a moment between opening the stream and writing to it.
func (m *Manager) streamOpen() {
	m.met.streams.Inc()
	m.mu.Lock()
	m.streaming = true
	m.interval = minRelist
	m.lastEventAt = time.Time{}
	m.mu.Unlock()
	m.relistNow()
}

// onEvent requests an inspection of an event's pod. The stream's goroutine calls it, in order.
// It does not wait for inspections. The event itself never becomes the state.
func (m *Manager) onEvent(e observed.Event) {
	now := time.Now()
	late := now.Sub(e.At)
	m.met.latency.Observe(max(late.Seconds(), 0))
	m.mu.Lock()
	// A lost order or a delay means that events may have been dropped.
	gap := late > lateEvent || m.lastEventAt.Sub(e.At) > lateEvent
	if gap || e.At.After(m.lastEventAt) {
		m.lastEventAt = e.At
	}
	switch r := m.records[e.UID]; {
	case r == nil && (e.Kind == observed.ContainerStopped || e.Kind == observed.ContainerDeleted):
		// The pod was unknown, and is gone.
	case r == nil:
		m.look(m.addRecord(e.UID))
	case !r.knows(e):
		m.look(r)
	}
	m.mu.Unlock()
	if gap {
		m.relistNow()
	}
}

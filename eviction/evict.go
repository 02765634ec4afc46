package eviction

import (
	"context"
	"errors"
	"math"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/eviction/rank"
	"github.com/nodewright/nodewright/internal/seconds"
	"github.com/nodewright/nodewright/podlife"
)

// Evictions. Each has its own goroutine, and no lane waits for it. While it runs, it counts as
// freeing what its pod uses.

const (
	// slack is the time for stopping containers beyond their grace period. If it takes longer,
	// the eviction no longer counts, and another pod may be chosen.
	slack = 5 * time.Second
	// freeing is the time for which the volumes of a pod with stopped containers count as about
	// to be freed, as in the kubelet. freedEvery is the interval of calls of Config.Freed.
	freeing    = 30 * time.Second
	freedEvery = 500 * time.Millisecond
	// leastKill is the shortest timeout of Config.Kill (the kubelet's).
	leastKill = 10 * time.Second
	// pause is the time after the end of an eviction during which its pod is not chosen again.
	pause = 30 * time.Second
)

// order is the instruction to evict a pod.
type order struct {
	rules       rank.Rules
	candidate   rank.Candidate
	label       string // label of the metric
	grace       int64  // seconds
	kind        podlife.Kind
	message     string
	annotations map[string]string
}

// eviction is an eviction that is under way or ended recently. Manager.mu guards its fields.
type eviction struct {
	order
	lane *lane
	// until is when the eviction stops counting even if it has not ended: the pod may hang in the
	// kernel.
	until time.Time // after it counted returns false
	// stopped means that the processes have ended, but the volumes are not freed yet.
	stopped bool
	ended   time.Time // zero while under way
	// failed means that the pod may still run. It may be chosen again after pause.
	failed bool
}

// counted reports whether the eviction is still expected to free something.
func (e *eviction) counted(now time.Time) bool { return e.ended.IsZero() && now.Before(e.until) }

// evict starts the eviction of a pod and does not wait for its end. The eviction is registered
// at once, so that no other lane chooses the pod. The event is recorded at the start.
func (m *Manager) evict(ctx context.Context, l *lane, o order, d *Decision) {
	pod, now := o.candidate.Pod, time.Now()
	grace := seconds.Of(o.grace)
	v := &Victim{Pod: ref(pod), GraceSeconds: o.grace, Began: now}
	e := &eviction{order: o, lane: l, until: now.Add(grace + slack)}
	m.mu.Lock()
	m.evicting[pod.UID] = e
	d.Victims = append(d.Victims, v)
	m.mu.Unlock()

	m.met.evicted(o.label)
	m.cfg.Log.Info("evicting pod", zap.String("pod", pod.Namespace+"/"+pod.Name), zap.String("for", o.label), zap.String("message", o.message))
	why := podlife.Cause{Kind: o.kind, Message: o.message, At: now, Grace: &o.grace}
	eventType, reason, message := why.Event()
	m.cfg.Events.Pod(pod, o.annotations, eventType, reason, message)
	m.wg.Go(func() {
		// Half as much again as the grace, as with the kubelet.
		err := m.kill(ctx, pod, why, max(leastKill, grace*3/2))
		m.stopped(e, v, err)
		if err == nil {
			m.freed(ctx, e)
		}
		m.ended(e, err)
	})
}

// kill calls Config.Kill, and returns an error if the call does not return within limit. Run waits
// for a call that hangs.
func (m *Manager) kill(ctx context.Context, pod *v1.Pod, cause podlife.Cause, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := make(chan error, 1)
	m.wg.Go(func() { done <- m.cfg.Kill(ctx, pod, cause) })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stopped records that a pod's containers have stopped, or the error.
func (m *Manager) stopped(e *eviction, v *Victim, err error) {
	pod, now := e.candidate.Pod, time.Now()
	m.mu.Lock()
	e.stopped, e.until = err == nil, now.Add(freeing)
	v.Took = now.Sub(v.Began)
	if v.Ended = true; err != nil {
		v.Error = err.Error()
	}
	m.mu.Unlock()
	if err != nil {
		m.met.killFailed(e.label)
		m.cfg.Log.Warn("failed to evict pod", zap.String("pod", pod.Namespace+"/"+pod.Name), zap.Error(err))
	}
	if errors.Is(err, context.DeadlineExceeded) {
		m.cfg.Events.Pod(pod, nil, v1.EventTypeWarning, "ExceededGracePeriod", "The pod has not ended within its grace period")
	}
}

// freed waits until the resources of a stopped pod are free. Meanwhile the lanes of memory and
// processes read their signals, since the processes have ended.
func (m *Manager) freed(ctx context.Context, e *eviction) {
	if m.cfg.Freed == nil || m.cfg.Freed(e.candidate.Pod.UID) {
		return
	}
	m.lookAgain(true)
	limited, cancel := context.WithTimeout(ctx, freeing)
	defer cancel()
	tick := time.NewTicker(freedEvery)
	defer tick.Stop()
	for !m.cfg.Freed(e.candidate.Pod.UID) {
		select {
		case <-limited.Done():
			if ctx.Err() == nil {
				m.cfg.Log.Warn("volumes of evicted pod are still mounted", zap.Stringer("pod", ref(e.candidate.Pod)), zap.Duration("after", freeing))
			}
			return
		case <-tick.C:
		}
	}
}

// ended records the end of an eviction.
func (m *Manager) ended(e *eviction, err error) {
	m.mu.Lock()
	e.ended, e.failed = time.Now(), err != nil
	m.mu.Unlock()
	// After an error the pod may still run and has freed nothing, so earlier figures stay valid.
	m.lookAgain(err == nil)
}

// lookAgain wakes every lane, since a pod that was evicted for memory has freed disk and processes
// too. If freed is set, lanes ignore figures from before now.
func (m *Manager) lookAgain(freed bool) {
	for _, l := range m.lanes {
		if freed {
			m.raise(l)
		}
		l.kick("eviction ended")
	}
}

// raise makes a lane ignore figures from before now. Otherwise a second pod would be evicted
// based on figures that still include the first.
func (m *Manager) raise(l *lane) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l.floor = time.Now()
}

// underWay returns the evictions of a lane that are under way. coming is the amount of the signal
// that they will free, and running is their number. other reports that other lanes have evictions
// under way.
func (m *Manager) underWay(l *lane, s rank.Signal, now time.Time) (coming int64, running int, other bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.evicting {
		switch {
		case !e.counted(now):
		// Victims of other lanes free an unknown amount of this signal. For memory and
		// processes, volumes free nothing more.
		case e.lane != l, e.stopped && l.condition != v1.NodeDiskPressure:
			other = true
		default:
			running++
			frees := rank.Of(e.rules, s, e.candidate).Used
			if frees == 0 { // an unknown amount may be enough
				frees = math.MaxInt64 / 2
			}
			if coming += frees; coming < 0 {
				coming = math.MaxInt64
			}
		}
	}
	return coming, running, other
}

// givesUp returns the next time at which an eviction of the lane stops counting.
func (m *Manager) givesUp(l *lane, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	var first time.Time
	for _, e := range m.evicting {
		if e.lane == l && e.counted(now) && (first.IsZero() || e.until.Before(first)) {
			first = e.until
		}
	}
	return first
}

// statusOf returns a function for situation.status. A pod whose eviction succeeded counts as
// under way until Config.Pods no longer has it.
func (m *Manager) statusOf(now time.Time) func(types.UID) Verdict {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[types.UID]Verdict{}
	for uid, e := range m.evicting {
		switch {
		case !e.failed:
			out[uid] = UnderWay
		case now.Sub(e.ended) < pause:
			out[uid] = Failed
		}
	}
	return func(uid types.UID) Verdict { return out[uid] }
}

// sweep removes ended evictions whose pods are gone, or that ended long enough ago.
func (m *Manager) sweep() {
	m.mu.Lock()
	// Most passes have nothing to remove and need no list of pods.
	n := len(m.evicting)
	m.mu.Unlock()
	if n == 0 {
		return
	}
	// Config.Pods takes locks of its own, so that m.mu is not held.
	there := map[types.UID]bool{}
	for _, p := range m.cfg.Pods() {
		there[p.UID] = true
	}
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid, e := range m.evicting {
		if !e.ended.IsZero() && (!there[uid] || now.Sub(e.ended) >= pause) {
			delete(m.evicting, uid)
		}
	}
}

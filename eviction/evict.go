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

// Ending pods. An eviction has a goroutine of its own, and no lane waits for it:
// while it runs, it counts as something that will free what its pod uses.

const (
	// slack is what stopping containers takes beyond their grace. A pod that
	// takes longer is no longer counted on, and another may be chosen.
	slack = 5 * time.Second
	// freeing is how long a pod whose containers have stopped is counted on for what
	// its volumes are to free, as with the kubelet; freedEvery is how often that is asked for.
	freeing    = 30 * time.Second
	freedEvery = 500 * time.Millisecond
	// leastKill is the kubelet's least deadline of a kill.
	leastKill = 10 * time.Second
	// pause is how long a pod whose eviction has ended, one way or the
	// other, is not chosen again.
	pause = 30 * time.Second
)

// order is to evict a pod.
type order struct {
	rules       rank.Rules
	candidate   rank.Candidate
	label       string // of the metric
	grace       int64  // seconds
	kind        podlife.Kind
	message     string
	annotations map[string]string
}

// eviction is one that is under way or has ended not long ago. Its fields are
// guarded by Manager.mu.
type eviction struct {
	order
	lane *lane
	// until is when the lane stops counting on it: the pod may hang in the kernel.
	until time.Time // counted on for that long
	// stopped: its processes are gone, and its volumes are not yet.
	stopped bool
	ended   time.Time // zero while under way
	// failed: the pod may still run, and may be chosen again after a pause.
	failed bool
}

// counted reports whether the eviction is expected to free something yet.
func (e *eviction) counted(now time.Time) bool { return e.ended.IsZero() && now.Before(e.until) }

// evict begins to end a pod and does not wait for it. It is noted before anything
// else can look, so that no lane chooses the pod twice. The event is sent at the
// start: the pod's own containers may not live to see the end.
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
	m.cfg.Log.Info("evicting", zap.String("pod", pod.Namespace+"/"+pod.Name), zap.String("for", o.label), zap.String("message", o.message))
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

// kill has the pod ended, and gives up on a KillFunc that does not come back. That
// call stays behind, and Run waits for it. The channel has room for its result, so
// that it can end.
func (m *Manager) kill(ctx context.Context, pod *v1.Pod, why podlife.Cause, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := make(chan error, 1)
	m.wg.Go(func() { done <- m.cfg.Kill(ctx, pod, why) })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stopped notes that a pod's containers have stopped, or how that failed.
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
		m.cfg.Log.Warn("eviction failed", zap.String("pod", pod.Namespace+"/"+pod.Name), zap.Error(err))
	}
	if errors.Is(err, context.DeadlineExceeded) {
		m.cfg.Events.Pod(pod, nil, v1.EventTypeWarning, "ExceededGracePeriod", "The pod has not ended within its grace period")
	}
}

// freed waits until what a pod used is free again. Its processes are gone, which lanes of memory
// and processes look at meanwhile.
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
				m.cfg.Log.Warn("an evicted pod still has volumes", zap.Stringer("pod", ref(e.candidate.Pod)), zap.Duration("after", freeing))
			}
			return
		case <-tick.C:
		}
	}
}

// ended notes that nothing more is to come of an eviction.
func (m *Manager) ended(e *eviction, err error) {
	m.mu.Lock()
	e.ended, e.failed = time.Now(), err != nil
	m.mu.Unlock()
	// A pod that may still run has freed nothing: figures from before are as
	// good as ever.
	m.lookAgain(err == nil)
}

// lookAgain has every lane look: a pod that ended for memory has freed disk and processes as well. With
// freed, figures from before now are too old.
func (m *Manager) lookAgain(freed bool) {
	for _, l := range m.lanes {
		if freed {
			m.raise(l)
		}
		l.kick("eviction ended")
	}
}

// raise makes figures from before now too old for a lane to act upon. Without it, a
// second pod would be ended on figures that still count the first.
func (m *Manager) raise(l *lane) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l.floor = time.Now()
}

// underWay is how many evictions a lane has under way and how much of a
// signal they will free, and whether another lane has any.
func (m *Manager) underWay(l *lane, s rank.Signal, now time.Time) (coming int64, running int, other bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.evicting {
		switch {
		case !e.counted(now):
		// A lane cannot tell what another lane's victim frees of its own signal, nor those of memory and
		// processes what is still to come of volumes.
		case e.lane != l, e.stopped && l.condition != v1.NodeDiskPressure:
			other = true
		default:
			running++
			frees := rank.Of(e.rules, s, e.candidate).Used
			if frees == 0 { // what is not known to free anything may free all
				frees = math.MaxInt64 / 2
			}
			if coming += frees; coming < 0 {
				coming = math.MaxInt64
			}
		}
	}
	return coming, running, other
}

// givesUp is when a lane's next eviction under way stops being counted on.
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

// statusOf returns what stands against choosing a pod. One whose eviction has
// succeeded counts as under way until it is no longer listed: its object goes some
// time after its containers.
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

// sweep forgets evictions that have ended and whose pods are gone, or have had
// the time to go.
func (m *Manager) sweep() {
	m.mu.Lock()
	// Most passes have nothing to forget and need not list the pods.
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

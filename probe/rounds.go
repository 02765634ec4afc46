package probe

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/seconds"
	"github.com/nodewright/nodewright/probe/check"
)

// execSlack is the time after its timeout that an exec check waits for the runtime's answer: the
// CRI has timeouts in whole seconds, rounded up.
const execSlack = 2 * time.Second

// timing returns the Timing of p. Zero values mean the API's defaults. The caller holds m.mu.
func (m *Manager) timing(p *prober) check.Timing {
	t := check.Timing{
		InitialDelay: seconds.Of(p.spec.InitialDelaySeconds), Period: seconds.Of(p.spec.PeriodSeconds), Timeout: seconds.Of(p.spec.TimeoutSeconds),
		SuccessThreshold: int(p.spec.SuccessThreshold), FailureThreshold: int(p.spec.FailureThreshold),
		// An early success of a liveness probe has no effect.
		FastStart: m.cfg.FastStart && p.t != Liveness && p.result != Success,
	}
	switch {
	case p.fresh || p.t == Startup:
		// No spread: the result is awaited, or the periods are counted until the end.
	// The result is not awaited: the first check is delayed by a random part of the
	// period, so that probes of many pods do not run in step.
	case p.t == Liveness || p.result == Success:
		t.Spread = check.SpreadFirst
	// Readiness: the first check decides how soon the container gets traffic, so
	// that only the later ones are spread.
	case t.SuccessThreshold <= 1:
		t.Spread = check.SpreadSecond
	}
	// Adjust gets the full initial delay of the spec.
	if m.cfg.Adjust != nil {
		m.cfg.Adjust(p.c.pod.pod, p.c.spec, p.t, &t)
	}
	t.InitialDelay = max(0, t.InitialDelay-time.Since(p.c.started))
	return t
}

// start starts the checks of p. The caller holds m.mu.
func (m *Manager) start(p *prober) {
	turn, id := p.turn, p.c.id
	// Both functions are bound to the turn: their results after a stop are dropped.
	s := check.Spec{
		Timing: m.timing(p), Group: string(p.c.pod.uid),
		Check: func(ctx context.Context) (check.Outcome, string, error) { return m.check(ctx, p, turn) },
		Done:  func(r check.Round) bool { return m.done(p, turn, id, r) },
	}
	// Each command costs a process, and the runtime's answer may come after the
	// timeout.
	if p.spec.Exec != nil {
		s.Expensive, s.Slack = true, execSlack
	}
	p.running = m.engine.Add(s)
}

// done handles the result of a round, and reports whether to continue.
func (m *Manager) done(p *prober, turn uint64, id string, r check.Round) (again bool) {
	m.mu.Lock()
	if p.turn != turn {
		m.mu.Unlock()
		return false // the container is gone
	}
	again = true
	// At the first check, and not before: a probe that was never made has no
	// series.
	if p.series == nil {
		p.series = m.met.add(p)
	}
	p.series.observe(r)
	ps, name := p.c.pod, p.c.spec.Name
	// The values for the events are read here; the events are sent without the
	// lock.
	about := ps.pod
	m.lookedAt(p, r)
	p.count(r)
	// An error, or too few in a row, leaves the result as it is.
	if r.Verdict != check.Unknown {
		result := Success
		if r.Verdict == check.Failure {
			result = Failure
		}
		if p.t.holds(result) {
			// The engine drops the probe, since no more rounds are wanted; a new
			// container adds another one.
			p.held, again = true, false
			// A later stop must not use a probe that the engine has dropped.
			p.running = nil
			p.turn++
		}
		p.fresh = false
		// Compared with the latest, as an earlier result may still wait for the
		// journal.
		if result != p.latest {
			p.latest = result
			m.publish(ps, news{p: p, id: id, result: result, streak: p.streak})
		}
	}
	m.mu.Unlock()
	m.tell(about, name, p.t, r)
	return again
}

// count adds a round to the streak, unless it does not count for the result. The caller holds m.mu.
func (p *prober) count(r check.Round) {
	outcome := r.Outcome
	if outcome == check.Warning {
		outcome = check.Success
	}
	if r.Err != nil || outcome == check.Unknown || r.Extra && outcome == check.Failure {
		return
	}
	if p.outcome != outcome {
		p.outcome, p.streak = outcome, Streak{Since: time.Now()}
	}
	p.streak.Times++
	if outcome == check.Failure {
		p.streak.Output = r.Output
	}
}

// lookedAt logs when a probe begins to end in errors only, and when it ends in a result again.
// The caller holds m.mu.
func (m *Manager) lookedAt(p *prober, r check.Round) {
	threshold := int(p.spec.FailureThreshold)
	if threshold <= 0 {
		// The API's default.
		threshold = 3
	}
	switch {
	// Logged only at the beginning and the end.
	case !p.blind && r.Errors >= threshold:
		p.blind = true
		m.cfg.Log.Warn("probe gets only errors; keeping its last result", zap.String("pod", p.c.pod.pod.Namespace+"/"+p.c.pod.pod.Name),
			zap.String("container", p.c.spec.Name), zap.Stringer("probe", p.t), zap.Stringer("result", p.result), zap.Error(r.Err))
	case p.blind && r.Errors == 0:
		p.blind = false
		m.cfg.Log.Info("probe works again", zap.String("pod", p.c.pod.pod.Namespace+"/"+p.c.pod.pod.Name),
			zap.String("container", p.c.spec.Name), zap.Stringer("probe", p.t))
	}
}

// tell sends the events of a round, with the kubelet's texts. It is called without
// m.mu, on the goroutine of the check.
func (m *Manager) tell(pod *v1.Pod, name string, t Type, r check.Round) {
	reason, message := "", ""
	switch {
	// Additional checks of FastStart may fail without anything being wrong.
	case r.Extra && r.Outcome != check.Warning || r.Err == nil && (r.Outcome == check.Success || r.Outcome == check.Unknown):
	case r.Err != nil:
		reason, message = "Unhealthy", fmt.Sprintf("%s probe errored and resulted in %s state: %v", t, r.Outcome, r.Err)
	case r.Outcome == check.Warning:
		reason, message = "ProbeWarning", fmt.Sprintf("%s probe warning: %s", t, r.Output)
	default:
		reason, message = "Unhealthy", fmt.Sprintf("%s probe failed: %s", t, r.Output)
	}
	if reason == "" {
		return
	}
	m.cfg.Log.Debug("probe did not succeed", zap.String("reason", reason), zap.String("message", message), zap.String("pod", pod.Namespace+"/"+pod.Name), zap.String("container", name))
	if c, ok := m.cfg.Events.(ContainerEvents); ok {
		c.ContainerEvent(pod, name, v1.EventTypeWarning, reason, message)
	} else if m.cfg.Events != nil {
		m.cfg.Events.Event(pod, v1.EventTypeWarning, reason, message)
	}
}

// publish requests that a result is journaled and reported. The caller holds m.mu.
func (m *Manager) publish(ps *pod, n news) {
	ps.queue = append(ps.queue, n)
	// One goroutine for each pod keeps the order; it exists only while there are
	// results to report.
	if !ps.publishing {
		ps.publishing = true
		m.wg.Go(func() { m.publishAll(ps) })
	}
}

// publishAll journals and reports the results of a pod in order.
func (m *Manager) publishAll(ps *pod) {
	for {
		m.mu.Lock()
		batch := ps.queue
		ps.queue = nil
		// The pod may have been removed meanwhile, and observed anew under the same
		// UID.
		if len(batch) == 0 || m.pods[ps.uid] != ps {
			ps.publishing = false
			m.mu.Unlock()
			return
		}
		// Within the lock, so that it is not written after a removal.
		written := m.journal.put(ps.uid, ps.record())
		m.mu.Unlock()
		// If the agent crashed between report and write, the next process would report another
		// result.
		m.journal.wait(written)
		// Without a lock: the callback may call the Manager.
		for _, c := range m.commit(ps, batch) {
			m.cfg.OnChange(c)
		}
	}
}

// commit makes results visible in Result. Results of replaced probes are dropped.
func (m *Manager) commit(ps *pod, batch []news) []Change {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Change
	for _, n := range batch {
		c := n.p.c
		// The pod may have changed while the journal was written.
		if m.pods[ps.uid] != ps || c.id != n.id || !c.running || c.probes[n.p.t] != n.p || ps.ending && n.p.t != Readiness {
			continue
		}
		n.p.result = n.result
		out = append(out, Change{Pod: ps.pod, Container: c.spec.Name, ContainerID: c.id, Type: n.p.t, Result: n.result, IP: ps.ip, Streak: n.streak})
		// A startup Success lets the other probes of the container begin.
		m.arrange(c)
	}
	return out
}

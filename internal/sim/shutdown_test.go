package sim

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/node/shutdown"
	"github.com/nodewright/nodewright/podlife"
)

// The times that pods have when the machine goes down, by their priority, and when it goes
// down at the latest: see nodeConfig.
const (
	lowTime, highTime = 40 * time.Second, 20 * time.Second
	highPriority      = 1000
	downWithin        = lowTime + highTime + 30*time.Second
)

// The priorities of pods of the system: of the classes system-cluster-critical and
// system-node-critical.
const (
	clusterCritical = 2_000_000_000
	nodeCritical    = clusterCritical + 1000
)

// logind is what has the machine go down, and waits for the agent.
type logind struct {
	mu       sync.Mutex
	down     bool
	news     chan struct{} // closed with each change
	released chan struct{} // closed when the agent lets the machine go down
}

func newLogind() *logind { return &logind{news: make(chan struct{})} }

func (l *logind) set(down bool) (released chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down, l.released = down, make(chan struct{})
	close(l.news)
	l.news = make(chan struct{})
	return l.released
}

func (l *logind) Watch(ctx context.Context, _ time.Duration, on func(down bool)) error {
	for {
		l.mu.Lock()
		down, news := l.down, l.news
		l.mu.Unlock()
		on(down)
		select {
		case <-ctx.Done():
			return nil
		case <-news:
		}
	}
}

func (l *logind) Release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down && l.released != nil {
		close(l.released)
		l.released = nil
	}
}

var _ shutdown.Machine = (*logind)(nil)

// doShutdown is [off DURATION]: the machine goes down in order, and comes back; or that is called
// off after a while, unless it is down by then.
func (m *machine) doShutdown(s step) error {
	if !m.node {
		return nil
	}
	within, off := downWithin, s.arg(0) == "off"
	if off {
		d, err := time.ParseDuration(s.arg(1))
		if err != nil {
			return fmt.Errorf("shutdown off %q: want a duration", s.arg(1))
		}
		within = min(d, downWithin)
	}
	m.mu.Lock()
	m.downSince = time.Now()
	m.shutdowns++
	l := m.live
	m.trouble("shutdown", true)
	m.mu.Unlock()
	released := m.logind.set(true)
	over := false
	for !over && l != nil && time.Since(m.downSince) < within {
		if err := m.wait(time.Second); err != nil {
			return err
		}
		select {
		case <-released:
			over = true
		default:
		}
	}
	if off && !over {
		m.mu.Lock()
		m.downSince, m.calledOff = time.Time{}, time.Now()
		for _, p := range m.pods {
			if m.down || m.unheal["disk"] || m.hasFault(p) { // nobody sees whether its end has begun
				p.lowered = m.calledOff
			}
		}
		m.trouble("shutdown", false)
		m.mu.Unlock()
		m.logind.set(false)
		return nil
	}
	m.mu.Lock()
	m.judgeDown()
	m.downSince = time.Time{}
	m.mu.Unlock()
	m.logind.set(false)
	m.turnOff()
	m.mu.Lock()
	m.trouble("shutdown", false)
	m.mu.Unlock()
	time.Sleep(restartAfter)
	return m.start()
}

// judgeDown looks at a machine that goes down: nothing runs any more, if nothing was in the
// way, and the pod asks for less than its group's time: nobody waits for longer than that,
// and a container that is ended by force has two seconds more. m.mu is held.
func (m *machine) judgeDown() {
	if m.troubled > 1 || m.downSince.Sub(m.healed) < startBound || m.live == nil {
		return
	}
	for _, i := range m.made {
		if p := m.pods[i.uid]; m.runs(i) && p.grace+2*slack < p.groupTime() && !m.hasFault(p) && time.Since(p.trouble) > startBound {
			m.wrong("%s/%s runs when the machine goes down", p.object.Name, i.name)
		}
	}
}

// priority is that of a pod.
func (p *pod) priority() int32 {
	if p.object.Spec.Priority == nil {
		return 0
	}
	return *p.object.Spec.Priority
}

// critical reports whether others make room for a pod: it is static, or has a priority of the system's
// pods.
func (p *pod) critical() bool { return p.static || p.priority() >= clusterCritical }

// lesser reports whether a pod has to make room for a critical one.
func (p *pod) lesser(than *pod) bool {
	if !p.critical() {
		return true
	}
	mine, theirs := p.object.Spec.Priority, than.object.Spec.Priority
	return mine != nil && theirs != nil && *mine < *theirs
}

// shutdownGrace is what a pod has of its grace period while the machine goes down.
func (p *pod) shutdownGrace() time.Duration { return min(p.grace, p.groupTime()) }

// groupTime is how long pods of its priority have.
func (p *pod) groupTime() time.Duration {
	if p.priority() >= highPriority {
		return highTime
	}
	return lowTime
}

// mayEndForShutdown reports whether an instance may be ended since the machine goes down, and
// looks at the order: pods of a high priority run until the others have ended, or had their
// time. m.mu is held.
func (m *machine) mayEndForShutdown(p *pod) bool {
	if m.downSince.IsZero() {
		return m.endsAfterAll(p)
	}
	p.lowered = time.Now()
	if p.priority() < highPriority || time.Since(m.downSince) >= lowTime {
		return true
	}
	for _, q := range m.pods {
		if q.priority() >= highPriority {
			continue
		}
		for _, i := range m.made {
			if i.uid == q.object.UID && m.runs(i) && q.wanted {
				m.wrong("%s is ended for the shutdown, and %s runs, which has a lower priority", p.object.Name, q.object.Name)
				return true
			}
		}
	}
	return true
}

// endsAfterAll reports whether a pod may still be on its end that began before a shutdown was called
// off: nobody takes that back. m.mu is held.
func (m *machine) endsAfterAll(p *pod) bool {
	if p.lowered.IsZero() || m.calledOff.Before(p.lowered) {
		return false
	}
	since, bound := m.calledOff, p.groupTime()+2*slack
	if p.lowered.Equal(m.calledOff) { // it is tried again
		bound += startBound
		for _, t := range []time.Time{m.healed, p.trouble} {
			if t.After(since) {
				since = t
			}
		}
	}
	return time.Since(since) < bound || m.onRecord(p, podlife.Shutdown.Reason())
}

// judgeTerminated looks at a status that says that a pod was ended for a shutdown. m.mu is held.
func (m *machine) judgeTerminated(p *pod, st *v1.PodStatus) {
	if st.Reason != podlife.Shutdown.Reason() && st.Reason != shutdown.ReasonNotAdmitted {
		return
	}
	if m.shutdowns == 0 {
		m.wrong("%s was ended for a shutdown, and there was none: %s", p.object.Name, st.Message)
	}
	p.terminated = true
	if p.static { // it begins anew when the machine is back
		p.rejected, p.anew = true, false
	}
}

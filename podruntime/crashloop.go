package podruntime

import (
	"fmt"
	"hash/fnv"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podspec"
)

// crashLoop is what the Manager knows of the crash loop of a container. The [Backoff] computes the
// delay of the next restart from it. The zero value means that nothing is known.
type crashLoop struct {
	definition string // result of definitionOf; another definition begins without crashes
	// restarts is the number of restarts in this loop; 0 before the first.
	restarts int
	delay    time.Duration // before the last restart
	old      string        // ID of an instance of another definition or life of the pod; no restart is delayed because that instance ended
	recalled bool          // the loop was read from Config.Memory and not yet compared with the container's restart count
}

// definitionOf returns a hash of what a container is made from: its spec, which [podspec.Hash]
// covers, with the image and the resources.
func definitionOf(c *v1.Container) string {
	// As with the kubelet, an edit of image or resources begins anew: it may be
	// what mends the container.
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%q %q %q", c.Image, c.Resources.String(), podspec.Hash(c)) // a hash takes everything
	return fmt.Sprintf("%016x", h.Sum64())
}

// heldUntil returns the time until which the crash-loop back-off holds back the restart of a
// container, and the delay from the end of its previous instance, last, to that time. The zero
// time means that the container may start now.
func (m *Manager) heldUntil(pod *v1.Pod, c *v1.Container, last *observed.Container, now time.Time) (time.Time, time.Duration) {
	if last == nil || last.State != observed.Exited {
		// Only an end is followed by a wait.
		return time.Time{}, 0
	}
	l, ended := m.loop(pod, c, last, now)
	// The container was edited since it ended: who mended it shall not wait for
	// the old one.
	if l.old == last.ID {
		return time.Time{}, 0
	}
	// Asked anew each time, as the same end may be looked at many times: policies
	// are functions.
	delay := m.delay(m.crash(&l, pod, c, last))
	if until := ended.Add(delay); now.Before(until) {
		return until, delay
	}
	return time.Time{}, 0
}

// restarted records a restart of the container whose previous instance is last. saveLoops writes
// the record to Config.Memory, once for each sync.
func (m *Manager) restarted(pod *v1.Pod, c *v1.Container, last *observed.Container) {
	if last == nil || last.State != observed.Exited {
		return
	}
	l, _ := m.loop(pod, c, last, time.Now())
	if l.old == last.ID {
		l.restarts, l.delay = 1, 0
	} else {
		crash := m.crash(&l, pod, c, last)
		l.restarts, l.delay = crash.Restarts+1, m.delay(crash)
	}
	m.runs.change(pod.UID, func(p *podRuns) { p.of(c.Name).loop, p.loops.dirty = l, true })
}

// delay returns the policy's delay, or 0 if that is negative.
func (m *Manager) delay(c Crash) time.Duration { return max(m.cfg.Backoff.Delay(c), 0) }

// crash returns the argument of the policy's methods for the end of the instance last. Its
// Restarts is 0 if the policy says that the container had recovered.
func (m *Manager) crash(l *crashLoop, pod *v1.Pod, c *v1.Container, last *observed.Container) Crash {
	crash := Crash{
		Pod: pod, Container: c, ExitCode: last.ExitCode, Reason: last.Reason, Lived: lifetime(last),
		Restarts: l.restarts, Last: l.delay,
	}
	// Without a restart there is no loop to have come out of.
	if crash.Restarts > 0 && m.cfg.Backoff.Recovered(crash) {
		crash.Restarts, crash.Last = 0, 0
	}
	return crash
}

// lifetime returns how long an instance ran, from the start and end times of the runtime. It is 0
// if the instance never ran, or if the wall clock was put back meanwhile.
func lifetime(c *observed.Container) time.Duration {
	if c.StartedAt.IsZero() || c.FinishedAt.IsZero() {
		return 0
	}
	return max(c.FinishedAt.Sub(c.StartedAt), 0)
}

// loop returns the crash loop of a container and the time at which its last instance ended. It
// returns the crash loop in memory if there is one, else the one in Config.Memory, else the
// result of derive.
func (m *Manager) loop(pod *v1.Pod, c *v1.Container, last *observed.Container, now time.Time) (l crashLoop, ended time.Time) {
	m.recallLoops(pod.UID)
	m.runs.change(pod.UID, func(p *podRuns) { ended, l = p.ended(last, now), p.of(c.Name).loop })
	// Policies are called without a lock. Nobody else changes the loop of this container
	// meanwhile.
	definition := definitionOf(c)
	switch {
	case l.definition == "" && l.old == last.ID:
		l.definition = definition
	case l.definition == "", l.recalled && l.restarts > int(last.RestartCount):
		// Nothing is known, or of another pod by that name: a loop never has
		// more restarts than the container.
		l = m.derive(definition, pod, c, last)
	// A new definition begins without crashes; last is an end of the old one.
	case l.definition != definition:
		l = crashLoop{definition: definition, old: last.ID}
	}
	l.recalled = false
	m.runs.change(pod.UID, func(p *podRuns) { p.of(c.Name).loop = l })
	return l, ended
}

// deriveMost is the largest number of restarts from which derive computes a delay. A policy should
// reach its longest delay with fewer restarts.
const deriveMost = 64

// derive computes the crash loop of a container that has no record: it assumes that all restarts
// that the runtime has counted belong to this loop.
func (m *Manager) derive(definition string, pod *v1.Pod, c *v1.Container, last *observed.Container) crashLoop {
	l := crashLoop{definition: definition}
	if last.Hash != "" && last.Hash != podspec.Hash(c) {
		l.old = last.ID // edited while the agent was away
		return l
	}
	// A first end, or one of an instance that never ran: there is no loop yet.
	if last.RestartCount == 0 || last.StartedAt.IsZero() {
		return l
	}
	// All ends are taken to be like the last: nothing is known of the others.
	crash := Crash{Pod: pod, Container: c, ExitCode: last.ExitCode, Reason: last.Reason, Lived: lifetime(last)}
	for crash.Restarts < min(int(last.RestartCount), deriveMost) {
		crash.Last = m.delay(crash)
		crash.Restarts++
	}
	l.restarts, l.delay = int(last.RestartCount), crash.Last
	return l
}

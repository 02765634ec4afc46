package podruntime

import (
	"fmt"
	"hash/fnv"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podspec"
)

// CrashLoop is the state of the crash loop of a container. A [Backoff] computes the delay of the next
// restart from it. The zero value is a loop before its first restart.
type CrashLoop struct {
	Restarts int           // number of restarts in this loop
	Last     time.Duration // the delay before the latest restart
}

// Delay returns the time from a crash to the next restart.
func (l CrashLoop) Delay(b Backoff, crash Crash) time.Duration {
	return max(b.Delay(l.before(b, crash)), 0)
}

// Next returns the loop after the restart that follows a crash.
func (l CrashLoop) Next(b Backoff, crash Crash) CrashLoop {
	crash = l.before(b, crash)
	return CrashLoop{Restarts: crash.Restarts + 1, Last: max(b.Delay(crash), 0)}
}

// before returns crash with the restarts of the loop before it: none if the container had recovered.
func (l CrashLoop) before(b Backoff, crash Crash) Crash {
	crash.Restarts, crash.Last = l.Restarts, l.Last
	// Without a restart there is no loop to have come out of.
	if crash.Restarts > 0 && b.Recovered(crash) {
		crash.Restarts, crash.Last = 0, 0
	}
	return crash
}

// CrashOf returns the end of an instance of a container. Restarts and Last are 0.
func CrashOf(pod *v1.Pod, c *v1.Container, ended *observed.Container) Crash {
	return Crash{Pod: pod, Container: c, ExitCode: ended.ExitCode, Reason: ended.Reason, Lived: lifetime(ended)}
}

// assumedMost is the largest number of restarts from which AssumedCrashLoop computes a delay. A
// policy should reach its longest delay with fewer restarts.
const assumedMost = 64

// AssumedCrashLoop returns the crash loop before the end of the instance ended, if no earlier one was
// seen. It assumes that all restarts that the runtime has counted belong to this loop, and that each
// followed a crash like this one.
func AssumedCrashLoop(b Backoff, pod *v1.Pod, c *v1.Container, ended *observed.Container) CrashLoop {
	// An instance that never ran says nothing about the earlier ones.
	if ended.RestartCount <= 0 || ended.StartedAt.IsZero() {
		return CrashLoop{}
	}
	crash := CrashOf(pod, c, ended)
	for crash.Restarts < min(int(ended.RestartCount), assumedMost) {
		crash.Last = max(b.Delay(crash), 0)
		crash.Restarts++
	}
	return CrashLoop{Restarts: int(ended.RestartCount), Last: crash.Last}
}

// crashLoop is what the Manager knows of the crash loop of a container. The zero value means that
// nothing is known.
type crashLoop struct {
	CrashLoop
	definition string // result of definitionOf; another definition begins without crashes
	old        string // ID of an instance of another definition or life of the pod; no restart is delayed because that instance ended
	recalled   bool   // the loop was read from Config.Memory and not yet compared with the container's restart count
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
	delay := l.Delay(m.cfg.Backoff, CrashOf(pod, c, last))
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
		l.CrashLoop = CrashLoop{Restarts: 1}
	} else {
		l.CrashLoop = l.Next(m.cfg.Backoff, CrashOf(pod, c, last))
	}
	m.runs.change(pod.UID, func(p *podRuns) { p.of(c.Name).loop, p.loops.dirty = l, true })
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
	case l.definition == "", l.recalled && l.Restarts > int(last.RestartCount):
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

// derive computes the crash loop of a container that has no record.
func (m *Manager) derive(definition string, pod *v1.Pod, c *v1.Container, last *observed.Container) crashLoop {
	if last.Hash != "" && last.Hash != podspec.Hash(c) {
		return crashLoop{definition: definition, old: last.ID} // edited while the agent was away
	}
	return crashLoop{definition: definition, CrashLoop: AssumedCrashLoop(m.cfg.Backoff, pod, c, last)}
}

package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
)

// probeFailures is the failure threshold of the probes.
const probeFailures = 2

// probeKinds are the keys of a pod's line that give its first container a probe; their
// values are periods in seconds.
var probeKinds = []string{"ready", "live", "start"}

// exitError is the end of a command with a code.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("command ended with exit code %d", int(e)) }
func (e exitError) ExitCode() int { return int(e) }

// answers are what the probes of a container were told.
type answers struct {
	success, failure time.Time // of the last
	failures         int       // in a row
}

// newProbe is a probe that runs a command, which informs the gate of its kind.
func newProbe(kind, seconds string) (*v1.Probe, error) {
	period, err := strconv.ParseInt(seconds, 10, 32)
	if err != nil || period < 1 {
		return nil, fmt.Errorf("%s %q: want a period in seconds", kind, seconds)
	}
	return &v1.Probe{
		ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"probe", kind}}},
		PeriodSeconds: int32(period), FailureThreshold: probeFailures, SuccessThreshold: 1, TimeoutSeconds: 2,
	}, nil
}

// setProbes gives a container its probes.
func setProbes(c *v1.Container, probes map[string]*v1.Probe) {
	c.ReadinessProbe, c.LivenessProbe, c.StartupProbe = probes["ready"], probes["live"], probes["start"]
}

// ExecSync answers the probes: ok, no, hang (until the command's own timeout), mute (until
// nobody waits any more) or broken, which says nothing about the container.
func (g *gate) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, err error) {
	m, heard := g.l.m, false
	err = g.call(ctx, "ExecSync", m.nameOf(id), false, nil, func() error {
		heard = true
		return m.answer(ctx, id, cmd[1], timeout)
	})
	switch {
	case g.l.isDead():
		return nil, nil, errDead
	case !heard && ctx.Err() != nil: // as with mute: the runtime answers others
		m.mu.Lock()
		m.probed(id, cmd[1]).fails()
		m.mu.Unlock()
	}
	return nil, nil, err
}

// probed are the answers that probes of a kind were given about a container. m.mu is held.
func (m *machine) probed(id, kind string) *answers {
	i := m.instanceOf(id)
	if i == nil {
		return &answers{}
	}
	if i.probed == nil {
		i.probed = map[string]*answers{}
	}
	if i.probed[kind] == nil {
		i.probed[kind] = &answers{}
	}
	return i.probed[kind]
}

func (a *answers) fails() {
	a.failure = time.Now()
	a.failures++
}

func (m *machine) answer(ctx context.Context, id, kind string, timeout time.Duration) error {
	m.mu.Lock()
	i := m.instanceOf(id)
	if i == nil || !m.runs(i) {
		m.mu.Unlock()
		return status.Error(codes.NotFound, "no such container runs")
	}
	a := m.probed(id, kind)
	how := m.pods[i.uid].answers[kind]
	switch how {
	case "":
		a.success, a.failures = time.Now(), 0
	case "no", "hang", "mute":
		a.fails()
	}
	m.mu.Unlock()
	switch how {
	case "no":
		return exitError(1)
	case "hang":
		select {
		case <-ctx.Done():
		case <-time.After(timeout):
		}
		return status.Error(codes.DeadlineExceeded, "command timed out")
	case "mute":
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	case "broken":
		return errInjected
	}
	return nil
}

// doProbe is NAME ready|live|start ANSWER: what a pod's probes are told from now on.
func (m *machine) doProbe(s step) error {
	kind, how := s.arg(1), s.arg(2)
	if !slices.Contains(probeKinds, kind) || !slices.Contains([]string{"ok", "no", "hang", "mute", "broken"}, how) {
		return fmt.Errorf("probe %s %s: want ready, live or start, and ok, no, hang, mute or broken", kind, how)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.newest(s.arg(0)); p != nil {
		p.trouble = time.Now()
		if how == "ok" {
			how = ""
		}
		p.answers = maps.Clone(p.answers) // that of an earlier version of the pod is its own
		if p.answers == nil {
			p.answers = map[string]string{}
		}
		p.answers[kind] = how
	}
	return nil
}

// healProbes has all probes answered well.
func (m *machine) healProbes() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pods {
		if p.unwell() {
			p.answers, p.trouble = nil, time.Now()
		}
	}
}

// unwell reports whether probes of a pod are told anything but that it is well.
func (p *pod) unwell() bool {
	return strings.Join(slices.Collect(maps.Values(p.answers)), "") != ""
}

// failed reports whether a probe has found an instance dead: that is a cause to end it.
func (i *instance) failed() bool {
	for _, kind := range []string{"live", "start"} {
		if a := i.probed[kind]; a != nil && a.failures >= probeFailures {
			return true
		}
	}
	return false
}

// judgeReadiness looks at the readiness of containers in a status that is published: it
// changes by a probe's result alone.
func (m *machine) judgeReadiness(p *pod, st v1.PodStatus) {
	for _, c := range st.ContainerStatuses {
		_, id, _ := strings.Cut(c.ContainerID, "://")
		i := m.instanceOf(id)
		if i == nil || c.State.Running == nil || c.Name != p.object.Spec.Containers[0].Name || p.object.Spec.Containers[0].ReadinessProbe == nil {
			continue
		}
		was := i.shown
		i.shown = shownReady{c.Ready, time.Now(), time.Now().Add(-knowledge)}
		if m.apiBad || time.Since(m.apiHealed) < reconnectBound {
			i.shown.of = i.shown.of.Add(-reconnectBound) // statuses take their time to arrive
		}
		if was.ready == c.Ready {
			if !was.at.IsZero() {
				i.shown = was
			}
			continue
		}
		a := i.probed["ready"]
		switch since := was.of; {
		case c.Ready && (a == nil || !a.success.After(since)):
			m.wrong("%s/%s became ready, and no probe has said so since %v", p.object.Name, c.Name, was.at.Sub(m.began))
		case !c.Ready && (a == nil || !a.failure.After(since)) && p.wanted:
			m.wrong("%s/%s became unready, and no probe has said so since %v", p.object.Name, c.Name, was.at.Sub(m.began))
		}
	}
}

// shownReady is the readiness that was published, and since when.
type shownReady struct {
	ready bool
	at    time.Time
	of    time.Time // what was found out after that may not have been in it
}

// judgeProbes looks for probes whose word does not count: containers that run on although
// theirs has found them dead, and readiness that is not published.
func (m *machine) judgeProbes(p *pod) {
	if !p.wanted || p.over || m.hasFault(p) {
		return
	}
	for _, i := range m.made {
		if i.uid != p.object.UID || len(i.probed) == 0 || !m.runs(i) {
			continue
		}
		ready := i.probed["ready"]
		since := m.healed
		for _, t := range []time.Time{p.trouble, p.since, i.started} {
			if t.After(since) {
				since = t
			}
		}
		name, bound := p.object.Name+"/"+i.name, startBound+p.grace
		switch {
		case time.Since(since) <= bound:
		case i.failed() && time.Since(i.probed["live"].last()) > bound && time.Since(i.probed["start"].last()) > bound:
			m.wrong("%s runs %v after its probe found it dead", name, time.Since(since))
		case ready != nil && ready.success.After(ready.failure) && !i.shown.ready && time.Since(ready.failure) > bound:
			m.wrong("%s is published as unready, and its probe says that it is ready", name)
		case ready != nil && ready.failures > int(bound/(20*time.Second)) && i.shown.ready:
			m.wrong("%s is published as ready, and its probe has failed %d times", name, ready.failures)
		}
	}
}

// forgetUnpublished excuses the next agent from a readiness that a killed one had not published: the
// journal may have it, and may not. The next success counts again. m.mu is held.
func (m *machine) forgetUnpublished() {
	for _, i := range m.made {
		if a := i.probed["ready"]; a != nil && !i.shown.ready && a.success.After(a.failure) {
			a.failure = a.success
		}
	}
}

// last is when the probe failed last.
func (a *answers) last() time.Time {
	if a == nil {
		return time.Time{}
	}
	return a.failure
}

// judgeReady looks at a pod at rest: it is ready if its probe says so.
func (m *machine) judgeReady(p *pod) {
	for _, c := range p.object.Status.ContainerStatuses {
		if c.Name == p.object.Spec.Containers[0].Name && p.stable && !p.over && !m.waits(p) && !c.Ready {
			m.wrong("%s/%s is not ready: %+v", p.object.Name, c.Name, c.State)
		}
	}
}

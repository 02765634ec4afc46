package probe

import (
	"reflect"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/probe/check"
)

// maxAge is the longest accepted running time of a container that was not observed
// before. A longer or negative one comes from a wrong clock: then the container
// waits for its whole initial delay.
const maxAge = 365 * 24 * time.Hour

// pod is the state of a pod. Manager.mu guards it and its contents.
type pod struct {
	// uid and life do not change. Each Observe may replace pod by a newer version.
	uid        types.UID
	life       uint32
	pod        *v1.Pod // as last observed; shared
	ip         string  // default address of probes
	containers map[string]*container
	ending     bool   // EndLivenessAndStartup was called
	over       bool   // the pod's phase is terminal
	seen       bool   // the runtime's state was observed
	restored   record // the journal's record, until the first observation
	queue      []news // results to be published
	publishing bool
}

// container is a container of a pod's spec and its current instance.
type container struct {
	pod *pod
	// spec belongs to the pod version that was observed last.
	spec    *v1.Container // shared
	id      string        // ID of the current instance; "" if there is none
	running bool
	// started is the start time by the monotonic clock.
	started time.Time
	// ranBefore means that the instance ran, or may have run, at the first observation of its
	// pod. before is its record in the journal, if journaled is set.
	ranBefore, journaled bool
	before               results
	probes               [types3]*prober
}

// prober is one probe of a container.
type prober struct {
	c    *container
	t    Type
	spec *v1.Probe // shared

	// latest is written to the journal first. result becomes latest when the write has ended or
	// was too slow.
	result Result // the reported result
	latest Result // the result that will be reported next
	held   bool   // the probe is stopped until there is a new container
	fresh  bool   // the result is unknown: the probe is checked at once
	blind  bool   // all checks have ended with errors for a long time; see lookedAt

	outcome check.Outcome // of the checks in streak: Success or Failure
	streak  Streak

	running *check.Scheduled // nil unless it is scheduled
	// turn is increased whenever the probe is stopped: results of an earlier turn
	// are dropped.
	turn   uint64
	series *series // nil before the first check
}

// news is a result that waits to be reported.
type news struct {
	p      *prober
	id     string
	result Result
	streak Streak
}

// specs updates a pod's containers and probes from its spec.
func (m *Manager) specs(ps *pod) {
	// Regular containers and sidecars: the API allows no probes for other init
	// containers, nor for ephemeral ones.
	named := map[string]bool{}
	take := func(spec *v1.Container) {
		named[spec.Name] = true
		c := ps.containers[spec.Name]
		if c == nil {
			c = &container{pod: ps}
			ps.containers[spec.Name] = c
		}
		// The instance and its results are kept: a changed spec is no new
		// container.
		c.spec = spec
		for t := range Type(types3) {
			m.spec(c, t)
		}
	}
	for i := range ps.pod.Spec.Containers {
		take(&ps.pod.Spec.Containers[i])
	}
	for i := range ps.pod.Spec.InitContainers {
		if spec := &ps.pod.Spec.InitContainers[i]; podmeta.IsSidecar(spec) {
			take(spec)
		}
	}
	for name, c := range ps.containers {
		if !named[name] {
			m.drop(c)
			delete(ps.containers, name)
		}
	}
}

// spec updates one probe from the spec. A changed probe starts counting anew, but keeps its
// result until there is a new one.
func (m *Manager) spec(c *container, t Type) {
	spec, p := t.of(c.spec), c.probes[t]
	switch {
	// The probe was removed from the spec: its result and metrics are dropped.
	case spec == nil && p != nil:
		m.end(p)
		c.probes[t] = nil
	case spec != nil && p == nil:
		p = &prober{c: c, t: t, spec: spec}
		p.result = t.initial()
		p.latest = p.result
		c.probes[t] = p
	case spec != nil:
		// The caller schedules it again with the new spec. An equal probe keeps its schedule.
		if !reflect.DeepEqual(p.spec, spec) {
			m.stop(p)
		}
		p.spec = spec
	}
}

// look applies an observation of the runtime to the pod and its containers.
func (m *Manager) look(ps *pod, obs *observed.Pod) {
	ps.ip = m.address(ps.pod, obs)
	for name, c := range ps.containers {
		o := obs.Newest(name)
		switch {
		// Without an instance, or between two, no result is known by ID.
		case o == nil || o.ID == "":
			m.replace(c, "")
		case o.ID != c.id:
			m.replace(c, o.ID)
			// An instance that appears after the first observation was started
			// since.
			c.ranBefore = !ps.seen && o.State.Runs() != observed.No
			c.before, c.journaled = ps.restored[o.ID]
			fallthrough
		default:
			m.state(c, o)
		}
	}
	// The journal's record is only for instances of the first observation.
	ps.seen, ps.restored = true, nil
}

// address returns the default address of a pod's probes: the pod's first address or, for a pod in
// the host's network, the node's.
func (m *Manager) address(p *v1.Pod, obs *observed.Pod) string {
	// The runtime's answer is newer than the status, which may not have an address yet.
	if ips := obs.IPs(); len(ips) > 0 {
		return ips[0]
	}
	switch {
	case p.Status.PodIP != "":
		return p.Status.PodIP
	case !p.Spec.HostNetwork:
		// Without an address its checks are errors, not failures.
		return ""
	case len(p.Status.HostIPs) > 0:
		return p.Status.HostIPs[0].IP
	case p.Status.HostIP != "":
		return p.Status.HostIP
	default:
		return m.cfg.HostIP
	}
}

// replace sets the ID of the instance of c. The ID is "" if there is no instance.
func (m *Manager) replace(c *container, id string) {
	// The ID may belong to another container by now, as after a rename in the spec.
	if c.id != "" && m.byID[c.id] == c {
		delete(m.byID, c.id)
	}
	c.id, c.running, c.ranBefore, c.journaled = id, false, false, false
	for _, p := range c.probes {
		if p != nil {
			m.stop(p)
			// The results belong to another instance. Initial results are not reported.
			p.set(p.t.initial())
			p.held, p.fresh = false, false
		}
	}
	if id != "" {
		m.byID[id] = c
	}
}

// set sets the result at once, without the journal and without a Change.
func (p *prober) set(r Result) { p.result, p.latest = r, r }

// state applies the observed state of the instance of c.
func (m *Manager) state(c *container, o *observed.Container) {
	switch {
	case o.State == observed.Unknown:
		// The state is unknown, so nothing changes.
	case o.State == observed.Running && !c.running:
		m.begin(c, o)
	case o.State != observed.Running:
		c.running = false
		// over reports that this container is never started again. A container that a rule
		// for the whole pod may restart is not over.
		over := o.State == observed.Exited && podlife.Starts(c.pod.pod, c.spec, o) == observed.No && !podmeta.CanRestartAll(c.pod.pod)
		for _, p := range c.probes {
			if p == nil {
				continue
			}
			m.stop(p)
			// Not running is a failure of every probe, as in the kubelet. It is not
			// reported, since the restart policy decides.
			p.set(Failure)
			if over {
				m.end(p)
			}
		}
	}
}

// begin applies the observation o of a running instance, with its results from the journal.
func (m *Manager) begin(c *container, o *observed.Container) {
	c.running, c.started = true, time.Now()
	before := c.before
	// Round(0) strips the monotonic readings: StartedAt is by the wall clock
	// alone, and so the difference has to be.
	if age := time.Now().Round(0).Sub(o.StartedAt.Round(0)); c.ranBefore && !o.StartedAt.IsZero() && age > 0 && age <= maxAge {
		c.started = c.started.Add(-age)
	}
	for _, p := range c.probes {
		if p == nil {
			continue
		}
		r := p.t.initial()
		switch {
		// A stored failure must not end the container.
		case c.journaled && before[p.t] != Unknown && !(p.t != Readiness && before[p.t] == Failure):
			r = before[p.t]
		// A new instance, or one without a result in the journal.
		case c.journaled || !c.ranBefore:
		// After a restart of the agent, a running container does not repeat its startup probe:
		// its other probes would wait for it.
		case p.t == Startup && statusStarted(c.pod.pod, c):
			r = Success
		default:
			r, p.fresh = Unknown, true
		}
		// The journal may lack the last result, or it was not published.
		if p.t == Readiness && c.journaled && r != Unknown && m.mayDiffer(c, r == Success) {
			r, p.fresh = Unknown, true
		}
		// Without a Change: this is no new result.
		p.set(r)
		p.held = p.t.holds(r)
	}
}

// statusStarted reports whether the pod's published status says that this instance
// has started.
func statusStarted(p *v1.Pod, c *container) bool {
	st := statusOf(&p.Status, c)
	return st != nil && st.Started != nil && *st.Started
}

// mayDiffer reports whether the published readiness of the instance of c may differ from ready.
// It does not differ in a status in which the instance does not run, since readiness has no
// meaning there.
func (m *Manager) mayDiffer(c *container, ready bool) bool {
	published, known := m.cfg.Published(c.pod.pod)
	if !known {
		return true
	}
	st := statusOf(published, c)
	return st != nil && st.State.Running != nil && st.Ready != ready
}

// statusOf returns the status of this instance in the pod's status, or nil.
func statusOf(pod *v1.PodStatus, c *container) *v1.ContainerStatus {
	for _, list := range [...][]v1.ContainerStatus{pod.ContainerStatuses, pod.InitContainerStatuses} {
		for i := range list {
			if _, id, _ := strings.Cut(list[i].ContainerID, "://"); list[i].Name == c.spec.Name && id == c.id {
				return &list[i]
			}
		}
	}
	return nil
}

// arrange starts and stops the probes of c. It is called after each event that may change the
// result of wanted: an observation, a reported result, the pod's end. The caller holds m.mu.
func (m *Manager) arrange(c *container) {
	for _, p := range c.probes {
		if p == nil {
			continue
		}
		// A container that is being stopped on purpose must not be killed for a
		// failing probe. Readiness goes on, so that endpoints see it become
		// unready.
		if c.pod.ending && p.t != Readiness {
			m.end(p)
			if c.running {
				p.set(Success)
			}
			continue
		}
		switch want := p.wanted(); {
		case want && p.running == nil:
			m.start(p)
		case !want && p.running != nil:
			m.stop(p)
		}
		if c.pod.over {
			// The metrics of an ended pod must not stay as long as its object.
			m.end(p)
		}
	}
}

// wanted reports whether p has to be checked.
func (p *prober) wanted() bool {
	c := p.c
	if !c.running || c.pod.over || p.held {
		return false
	}
	// The reported result counts, not the latest one: other probes start after it
	// was reported.
	return p.t == Startup || c.probes[Startup] == nil || c.probes[Startup].result == Success
}

// drop ends all probes of a container. The caller removes the container.
func (m *Manager) drop(c *container) {
	m.replace(c, "")
	for t, p := range c.probes {
		if p != nil {
			m.end(p)
			c.probes[t] = nil
		}
	}
}

// stop stops the checks of p. Results in progress are dropped.
func (m *Manager) stop(p *prober) {
	p.turn++
	p.outcome, p.streak = check.Unknown, Streak{}
	// The running check is cancelled, and its result belongs to an earlier turn.
	if p.running != nil {
		p.running.Stop()
		p.running = nil
	}
	p.blind = false
}

// end stops p permanently, and removes its metric series.
func (m *Manager) end(p *prober) {
	m.stop(p)
	if p.series != nil {
		m.met.remove(p.series)
		p.series = nil
	}
}

// record returns a pod's results for the journal.
func (ps *pod) record() record {
	// Only running instances: results of ended ones are useless for the next
	// process.
	r := record{}
	for _, c := range ps.containers {
		if c.id == "" || !c.running {
			continue
		}
		var res results
		for t, p := range c.probes {
			if p != nil {
				// The latest, since the journal is written before the report.
				res[t] = p.latest
			}
		}
		r[c.id] = res
	}
	return r
}

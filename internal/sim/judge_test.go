package sim

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/podlife"
)

// The judgements are made under machine.mu, right before an effect of the agent
// has its way. They ask the runtime itself, past all faults and lies.

// knowledge is how long the agent may act on an order that was taken back: it may
// be in the middle of a call.
const knowledge = 5 * time.Second

// slack is the part of a grace period that may get lost in rounding to seconds.
const slack = 2 * time.Second

// instance is one container that was made.
type instance struct {
	id, name, box string
	image         string
	uid           types.UID
	epoch         int
	started       time.Time
	code          int32 // as last seen
	dead          bool  // it was seen to have ended, or to be gone
	devices       []string
	cpus          string // of its own, or ""
	probed        map[string]*answers
	shown         shownReady
	oom           bool // the kernel has killed it
}

func (m *machine) status(id string) *runtimeapi.ContainerStatus {
	st, err := m.rt.ContainerStatus(context.Background(), id, false)
	if err != nil {
		return nil
	}
	return st.GetStatus()
}

// runs reports whether an instance does, and keeps its exit code if it ended.
func (m *machine) runs(i *instance) bool {
	if i.dead {
		return false
	}
	state, code, known := m.rt.State(i.id)
	if state == runtimeapi.ContainerState_CONTAINER_EXITED {
		i.code = code
	}
	i.dead = !known || state == runtimeapi.ContainerState_CONTAINER_EXITED
	return state == runtimeapi.ContainerState_CONTAINER_RUNNING
}

func (m *machine) boxReady(id string) bool {
	st, err := m.rt.PodSandboxStatus(context.Background(), id, false)
	return err == nil && st.GetStatus().GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
}

// endKnown reports whether the agent has to know that a pod is not wanted any more.
// Until all of its sources have spoken, it removes nothing, as another one may want
// the pod.
func (m *machine) endKnown(p *pod) bool {
	if p.wanted || m.live == nil || m.live.spoken.IsZero() {
		return false
	}
	since := p.since
	if m.live.spoken.After(since) {
		since = m.live.spoken
	}
	if !p.static {
		if m.apiDown || m.apiBad {
			return false
		}
		if m.apiHealed.After(since) {
			since = m.apiHealed
		}
	}
	return time.Since(since) > m.knowledge(p)
}

// knowledge is how long the agent may act on an order about a pod that was taken back.
func (m *machine) knowledge(p *pod) time.Duration {
	switch {
	case !m.node:
		return knowledge
	case p.static:
		return knowledge + rescan
	default:
		return knowledge + reconnectBound
	}
}

// beginsAnew has a static pod that was rejected be one that is wanted, and reports whether
// it is one: the next agent admits it anew.
func (p *pod) beginsAnew() bool {
	if p.static && p.rejected {
		p.over, p.rejected, p.anew = false, false, true
		return true
	}
	return false
}

// endForgotten reports whether the agent cannot know that a pod of the API server came to its
// end: the disk did not take that, the agent is another one, and the server does not answer. A node
// that comes up without a network runs what its disk has.
func (m *machine) endForgotten(p *pod) bool {
	if p.forgotten {
		return true
	}
	silent := m.apiDown || m.apiBad || time.Since(m.apiHealed) < reconnectBound
	if !m.node || p.static || !silent || !m.unheal["disk"] && !m.diskHealed.After(p.ended) {
		return false
	}
	p.forgotten = m.live != nil && m.live.began.After(p.ended)
	return p.forgotten
}

// noteContainer keeps what was made, and looks at what it was given.
func (m *machine) noteContainer(id, box string, uid types.UID, conf *runtimeapi.ContainerConfig) {
	i := &instance{id: id, name: conf.GetMetadata().GetName(), box: box, uid: uid, image: conf.GetImage().GetUserSpecifiedImage()}
	p := m.pods[uid]
	if p == nil {
		m.wrong("container %s is made for a pod that never was: %s", i.name, uid)
		return
	}
	i.epoch = p.epoch
	for _, e := range conf.GetEnvs() {
		if e.GetKey() == "DEVICES" {
			i.devices = strings.Split(string(e.GetValue()), ",")
			m.allocated = true
		}
	}
	if c := p.object.Spec.Containers[0]; c.Name == i.name {
		if n, own := c.Resources.Limits[v1.ResourceCPU]; own {
			i.cpus = conf.GetLinux().GetResources().GetCpusetCpus()
			if len(cpuList(i.cpus)) != int(n.Value()) {
				m.wrong("container %s/%s has CPUs %q, wants %v of its own", p.object.Name, i.name, i.cpus, n.Value())
			}
		}
		if want := c.Resources.Limits[device]; int(want.Value()) != len(i.devices) && (m.allocated || len(i.devices) > 0) {
			m.wrong("container %s/%s has devices %v, wants %v", p.object.Name, i.name, i.devices, want.Value())
		}
	}
	for _, o := range m.made {
		if o.uid == uid && o.name == i.name || len(o.devices) == 0 && o.cpus == "" || !m.runs(o) && o.dead {
			continue
		}
		for _, d := range i.devices {
			if slices.Contains(o.devices, d) {
				m.wrong("device %s of %s/%s is also that of %s/%s", d, p.object.Name, i.name, m.pods[o.uid].object.Name, o.name)
			}
		}
		if i.cpus != "" && o.cpus != "" && overlap(i.cpus, o.cpus) {
			m.wrong("CPUs %s of %s/%s are also those of %s/%s: %s", i.cpus, p.object.Name, i.name, m.pods[o.uid].object.Name, o.name, o.cpus)
		}
	}
	m.made[id] = i
}

func (m *machine) noteStart(id string) {
	i := m.instanceOf(id)
	if i == nil {
		return
	}
	i.started = time.Now()
	m.pods[i.uid].stopping = time.Time{}
	for _, o := range m.made { // a week has thousands, and only the latest have a say
		if o != i && o.uid == i.uid && o.name == i.name && !o.started.IsZero() && !m.runs(o) && o.dead {
			m.past[o.id] = o
			delete(m.made, o.id)
		}
	}
}

// instanceOf is the instance with an ID, or nil.
func (m *machine) instanceOf(id string) *instance {
	if i := m.made[id]; i != nil {
		return i
	}
	return m.past[id]
}

// judgeSandbox looks at the making of a sandbox.
func (m *machine) judgeSandbox(uid types.UID) {
	p := m.pods[uid]
	switch {
	case p == nil:
		m.wrong("a sandbox is made for a pod that never was: %s", uid)
		return
	case m.endKnown(p):
		m.wrong("a sandbox is made for %s, which has not been wanted for %v", p.object.Name, time.Since(p.since))
	case p.over && !(m.node && p.beginsAnew()) && !m.endForgotten(p):
		m.wrong("a sandbox is made for %s, which came to its end", p.object.Name)
	}
	for _, b := range m.boxesOf(uid) {
		if b.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			m.wrong("a second sandbox is made for %s", p.object.Name)
		}
	}
}

// boxesOf lists the sandboxes that the runtime has of a pod.
func (m *machine) boxesOf(uid types.UID) []*runtimeapi.PodSandbox {
	boxes, _ := m.look()
	return slices.DeleteFunc(boxes, func(b *runtimeapi.PodSandbox) bool { return b.GetMetadata().GetUid() != string(uid) })
}

// judgeStart looks at the start of a container.
func (m *machine) judgeStart(id string) {
	i := m.instanceOf(id)
	if i == nil {
		return
	}
	p := m.pods[i.uid]
	name := p.object.Name + "/" + i.name
	switch {
	case m.endKnown(p):
		m.wrong("%s is started, which has not been wanted for %v", name, time.Since(p.since))
	case p.over && !m.endForgotten(p):
		m.wrong("%s is started although its pod came to its end", name)
	}
	if len(p.object.Spec.ResourceClaims) > 0 && !m.driver.has(i.uid) {
		m.wrong("%s is started, and its claim is not prepared", name)
	}
	m.judgeVolumesAtStart(p)
	var last *instance
	for _, o := range m.made {
		if o == i || o.uid != i.uid || o.name != i.name || o.started.IsZero() {
			continue
		}
		if m.runs(o) {
			m.wrong("%s is started beside another instance that runs", name)
		}
		if last == nil || o.started.After(last.started) {
			last = o
		}
	}
	if last == nil || last.epoch != i.epoch || last.epoch != p.epoch || last.image != i.image || p.forgotten {
		return // it was made while the pod changed, or before
	}
	if _, _, known := m.rt.State(last.id); p.anew && !known {
		return // nothing is left of the time before, neither in the runtime nor in a mirror
	}
	policy, initial := p.policyOf(i.name)
	switch {
	case initial && last.box != i.box: // a new sandbox begins with them
	case initial && last.code == 0:
		m.wrong("init container %s is started again after its success", name)
	case policy == v1.RestartPolicyNever:
		m.wrong("%s is started again with policy Never", name)
	case !initial && policy == v1.RestartPolicyOnFailure && last.code == 0:
		m.wrong("%s is started again after its success", name)
	}
}

// judgeEnd looks at what ends a container, after a timeout at the latest.
func (m *machine) judgeEnd(id, how string, timeout time.Duration) {
	i := m.instanceOf(id)
	if i == nil {
		return
	}
	p := m.pods[i.uid]
	if !m.runs(i) {
		// The grace period of a pod that goes begins with the first call, also with one for a
		// container of whose end the agent has not heard.
		if !p.wanted && p.stopping.IsZero() {
			p.stopping = time.Now()
		}
		return
	}
	if !m.downSince.IsZero() {
		p.lowered = time.Now() // also one that may end for another cause
	}
	name := p.object.Name + "/" + i.name
	cause := m.mayEnd(p, i) || m.mayPreempt(p)
	evicted := !cause && !m.live.chose(p).IsZero() && m.mayEvict(p) // else it is an end for the shutdown, if there is one
	if !cause && !evicted && !m.mayEndForShutdown(p) && !m.mayEvict(p) {
		m.wrong("%s of %s has no cause", how, name)
	}
	if p.stopping.IsZero() {
		p.stopping = time.Now()
	}
	// The end of an eviction has the eviction's grace, whatever else ends the instance: the
	// eviction of a pod ends its sidecars once there is nobody left whom they serve, which
	// is a cause of its own. Spec eviction.md: hard thresholds kill with a grace of 1 s.
	grace := p.grace
	if !m.downSince.IsZero() || m.endsAfterAll(p) {
		grace = p.shutdownGrace()
	}
	left := grace - time.Since(p.stopping)
	if !cause && m.downSince.IsZero() && !m.endsAfterAll(p) || timeout >= left-slack || m.mayEvict(p) {
		return
	}
	m.wrong("%s of %s leaves it %v, %v of its grace period are left", how, name, timeout, left)
}

// mayEnd reports whether there is a cause for the end of an instance that runs.
func (m *machine) mayEnd(p *pod, i *instance) bool {
	if !p.wanted || p.over || i.epoch != p.epoch || !m.boxReady(i.box) || i.failed() {
		return true
	}
	if p.epoch > 0 && time.Since(p.since) == 0 {
		return true // an order of this moment, which the last edit may have taken back
	}
	for _, c := range p.object.Spec.Containers {
		if c.Name == i.name && c.Image != i.image {
			return true // it was made while the pod changed
		}
	}
	sidecar := slices.ContainsFunc(p.object.Spec.InitContainers, func(c v1.Container) bool { return c.Name == i.name && c.RestartPolicy != nil })
	if !sidecar || p.object.Spec.RestartPolicy == v1.RestartPolicyAlways {
		return false
	}
	for _, o := range m.made { // it goes when there is nobody left whom it serves
		if o.uid == p.object.UID && o.name[0] != 's' && o.name[0] != 'i' && m.runs(o) && !p.overdue(o) {
			return false
		}
	}
	return true
}

// overdue reports whether an instance should be gone for good: its probes failed, nothing
// follows it, and the grace period since a first stop in its pod is over. The turn of the
// sidecars comes then, whatever became of the call that stops it (KEP-753).
func (p *pod) overdue(o *instance) bool {
	policy, _ := p.policyOf(o.name)
	return o.failed() && policy == v1.RestartPolicyNever && !p.stopping.IsZero() && time.Since(p.stopping) >= p.grace-slack
}

// judgeEndOfSandbox looks at what stops or removes a sandbox with all in it.
func (m *machine) judgeEndOfSandbox(id, how string) {
	for _, i := range m.made {
		if i.box == id {
			m.judgeEnd(i.id, how, 0)
		}
	}
}

// judgeStatus looks at a status that is published, and is not one of before the
// pod's end: the sink of an API server keeps that, see podsync.Sink.
func (m *machine) judgeStatus(p *pod, st v1.PodStatus) {
	terminal := st.Phase == v1.PodSucceeded || st.Phase == v1.PodFailed
	if terminal {
		if !p.over {
			p.ended = time.Now()
		}
		p.over = true
		for _, c := range slices.Concat(st.InitContainerStatuses, st.ContainerStatuses) {
			if c.State.Running != nil {
				m.wrong("status of %s: %s, and it shows %s as running", p.object.Name, st.Phase, c.Name)
			}
		}
		for _, i := range m.made {
			if i.uid == p.object.UID && m.runs(i) && !p.forgotten { // what was begun by then is being ended
				m.wrong("status of %s: %s while %s runs", p.object.Name, st.Phase, i.name)
			}
		}
	}
	// What ended it for others is judged by itself.
	forOthers := slices.Contains([]string{podlife.Shutdown.Reason(), "Preempting", "Evicted"}, st.Reason)
	if p.anew && terminal && p.wanted && !forOthers && len(st.ContainerStatuses) > 0 && p.object.Spec.RestartPolicy == v1.RestartPolicyAlways {
		m.wrong("status of %s, which was rejected and began anew: %s", p.object.Name, st.Phase)
	}
	if st.Phase == v1.PodFailed && len(st.ContainerStatuses) == 0 {
		p.rejected, p.anew = true, false
		clear(p.counted)
		clear(p.counts) // it was rejected after a restart: its history goes, as with the kubelet
	}
	m.judgeReadiness(p, st)
	for _, c := range slices.Concat(st.InitContainerStatuses, st.ContainerStatuses) {
		m.judgeOOM(p, &c)
		if was := p.counts[c.Name]; c.RestartCount < was {
			m.wrong("restart count of %s/%s: %d after %d", p.object.Name, c.Name, c.RestartCount, was)
		}
		if c.State.Waiting != nil && c.RestartCount > p.counts[c.Name] {
			p.guessed = true // what became of the last one cannot be seen
		}
		if was := p.counted[c.Name]; c.State.Running != nil {
			if !p.guessed && c.RestartCount == was.count && m.sameBox(was.id, c.ContainerID) {
				m.wrong("restart count of %s/%s is %d as before, and it is another container", p.object.Name, c.Name, c.RestartCount)
			}
			p.counted[c.Name] = counted{c.ContainerID, c.RestartCount}
		}
		p.counts[c.Name] = c.RestartCount
	}
	if p.static && st.Reason == "Preempting" {
		clear(p.counts) // it begins anew, with a new mirror
		clear(p.counted)
	}
}

// counted is the restart count that was published of a container while it ran.
type counted struct {
	id    string
	count int32
}

// sameBox reports whether two IDs are of containers of one sandbox that were started. They are
// those of a status.
func (m *machine) sameBox(a, b string) bool {
	_, a, _ = strings.Cut(a, "://")
	_, b, _ = strings.Cut(b, "://")
	x, y := m.instanceOf(a), m.instanceOf(b)
	return a != b && x != nil && y != nil && x.box == y.box && !x.started.IsZero() && !y.started.IsZero()
}

// judgeDeletion looks at the last that is heard of a pod: nothing may be left.
func (m *machine) judgeDeletion(p *pod) {
	if p.wanted {
		m.wrong("%s is deleted, and nobody asked for that", p.object.Name)
	}
	for _, left := range m.leftOf(p.object.UID) {
		m.wrong("%s is deleted, and there is %s", p.object.Name, left)
	}
	if m.troubled > 0 || time.Since(m.healed) < startBound || time.Since(p.trouble) < startBound {
		return
	}
	for _, record := range []string{"placement/" + string(p.object.UID), "claims/claim." + string(claimOf(p.object.UID))} {
		if _, err := os.Stat(filepath.Join(m.root(), record)); err == nil {
			m.wrong("%s is deleted, and it has not given back what it had: %s", p.object.Name, record)
		}
	}
}

// leftOf lists what the runtime and the disk have of a pod.
func (m *machine) leftOf(uid types.UID) (out []string) {
	_, containers := m.look()
	for _, b := range m.boxesOf(uid) {
		out = append(out, "sandbox "+b.GetId()[56:])
	}
	for _, c := range containers {
		if c.GetLabels()["io.kubernetes.pod.uid"] == string(uid) {
			out = append(out, "container "+c.GetMetadata().GetName())
		}
	}
	if _, err := os.Stat(filepath.Join(m.root(), "pods", string(uid))); err == nil {
		out = append(out, "its directory")
	}
	for _, at := range m.mounts.below(filepath.Join(m.root(), "pods", string(uid))) {
		out = append(out, "a mount at "+strings.TrimPrefix(at, m.dir))
	}
	return out
}

// overlap reports whether two cpusets do.
func overlap(a, b string) bool {
	in := cpuList(a)
	return slices.ContainsFunc(cpuList(b), func(n int) bool { return slices.Contains(in, n) })
}

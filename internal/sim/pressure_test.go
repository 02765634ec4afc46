package sim

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/eviction"
	"github.com/nodewright/nodewright/eviction/rank"
	"github.com/nodewright/nodewright/nodeagent"
)

// What the machine has of memory and of disk, and what is left of each when pods are
// evicted, in Mi: the latter are the kubelet's defaults.
const (
	memoryMi, memoryLeastMi = 4 << 10, 100
	diskMi, diskLeastMi     = 100 << 10, 10 << 10
	// modestMi is what a pod uses of each that no step says more of.
	modestMi = 8
	// pressureBound is how long a condition holds after its cause, by the kubelet's default,
	// and a minute.
	pressureBound = 6 * time.Minute
	// restarted is how long a pod that began, or a step that changed what it uses, may be
	// unknown to a choice that is under way.
	restarted = 30 * time.Second
)

// usage is what pods use of memory or disk, in Mi.
type usage map[types.UID]int64

// needs is what the pods of a machine use, by what a step says. machine.mu guards it.
type needs struct {
	of    map[string]usage     // Mi of memory and disk, by pod
	short map[string]time.Time // when there was too little of each last
	wake  chan struct{}
}

func newNeeds() *needs {
	return &needs{of: map[string]usage{"memory": {}, "disk": {}}, short: map[string]time.Time{}, wake: make(chan struct{}, 1)}
}

// doUses is NAME memory|disk MI: what the first container of a pod uses from now on.
func (m *machine) doUses(s step) error {
	n, err := strconv.ParseInt(s.arg(2), 10, 64)
	if err != nil || s.arg(1) != "memory" && s.arg(1) != "disk" {
		return fmt.Errorf("uses %v: want a pod, memory or disk, and Mi", s.args)
	}
	if m.needs == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.newest(s.arg(0)); p != nil {
		m.needs.of[s.arg(1)][p.object.UID] = n
		m.left(s.arg(1))
	}
	select {
	case m.needs.wake <- struct{}{}:
	default:
	}
	return nil
}

// healUses has no pod use more than a little.
func (m *machine) healUses() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.needs != nil {
		clear(m.needs.of["memory"])
		clear(m.needs.of["disk"])
	}
}

// uses is what a pod uses of memory or disk, in Mi; 0 if nothing of it runs. m.mu is held.
func (m *machine) uses(what string, p *pod) int64 {
	if len(p.object.Spec.Containers) == 0 || m.running(p.object.UID, p.object.Spec.Containers[0].Name) == 0 {
		return 0
	}
	if n, said := m.needs.of[what][p.object.UID]; said {
		return n
	}
	return modestMi
}

// left is what is left of memory or disk, in Mi. m.mu is held.
func (m *machine) left(what string) int64 {
	left, least := int64(memoryMi), int64(memoryLeastMi)
	if what == "disk" {
		left, least = diskMi, diskLeastMi
	}
	if len(m.needs.of[what]) == 0 {
		return left // all pods are modest
	}
	for _, p := range m.pods {
		left -= m.uses(what, p)
	}
	if left < least {
		m.needs.short[what] = time.Now()
	}
	return max(0, left)
}

// pressed reports whether there was too little of something not long ago. m.mu is held.
func (m *machine) pressed(within time.Duration) bool {
	return m.needs != nil && (m.short("memory", within) || m.short("disk", within))
}

// short is pressed for memory or disk. m.mu is held.
func (m *machine) short(what string, within time.Duration) bool {
	at := m.needs.short[what]
	return !at.IsZero() && time.Since(at) < within
}

// evicts makes the part that evicts, and keeps it.
func (l *life) evicts(b *nodeagent.Builder) (part.Part, error) {
	p, err := nodeagent.Eviction(b)
	if err == nil {
		l.evictions = p.(explainer)
	}
	return p, err
}

// explainer is the part that evicts, as those see it who ask what it has decided.
type explainer interface{ ExplainNode(*local.NodeWhy) }

// chose returns when a life chose a pod for an eviction last; zero if it did not. That may be
// long before the pod's containers are ended, or never come to that, as calls of the runtime may
// hang or fail. m.mu is held.
func (l *life) chose(p *pod) (at time.Time) {
	if l == nil || l.evictions == nil {
		return at
	}
	var why local.NodeWhy
	l.evictions.ExplainNode(&why)
	for _, d := range why.Decisions {
		for _, line := range d.Lines {
			if strings.HasPrefix(line, p.object.Namespace+"/"+p.object.Name+" was given ") && d.Time.After(p.since) && d.Time.After(at) {
				at = d.Time
			}
		}
	}
	return at
}

// figures has evictions decide by what the machine says that its pods use.
func (l *life) figures(b *nodeagent.Builder) (part.Part, error) {
	b.Facts.EvictionStats.Give(measured{l})
	return nil, nil //nolint:nilnil // it has no hooks
}

// measured are the figures of the machine as one life reads them.
type measured struct{ l *life }

func observe(leftMi, allMi int64) rank.Observation {
	return rank.Observation{Available: leftMi << 20, Capacity: allMi << 20, Time: time.Now()}
}

func (f measured) Memory(context.Context) (eviction.Memory, error) {
	f.l.m.mu.Lock()
	defer f.l.m.mu.Unlock()
	left := f.l.m.left("memory")
	f.l.reads("memory", left)
	return eviction.Memory{Node: &eviction.MemoryFigure{Observation: observe(left, memoryMi)}}, nil
}

func (f measured) Disks(context.Context) (eviction.Disks, error) {
	f.l.m.mu.Lock()
	defer f.l.m.mu.Unlock()
	left := f.l.m.left("disk")
	f.l.reads("disk", left)
	bytes, inodes := observe(left, diskMi), observe(diskMi, diskMi)
	return eviction.Disks{Node: eviction.Filesystem{Device: "sim", Bytes: &bytes, Inodes: &inodes}}, nil
}

func (measured) Processes(context.Context) (rank.Observation, error) {
	return observe(1, 1), nil
}

func (f measured) Pods(_ context.Context, pods []*v1.Pod, _ eviction.Want) (map[types.UID]*rank.Usage, error) {
	m := f.l.m
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[types.UID]*rank.Usage{}
	for _, o := range pods {
		if p := m.pods[o.UID]; p != nil {
			memory, disk := m.uses("memory", p)<<20, m.uses("disk", p)<<20
			out[o.UID] = &rank.Usage{Time: time.Now(), Memory: memory, EphemeralStorage: disk, Containers: []rank.ContainerUsage{
				{Name: o.Spec.Containers[0].Name, Memory: memory, Rootfs: &rank.Disk{}, Logs: &rank.Disk{Bytes: disk, Inodes: 1}},
			}}
		}
	}
	return out, nil
}

// notices are the kernel's of the machine: a sign of pressure for each step about what a pod
// uses.
type notices struct{ m *machine }

func (n notices) Run(ctx context.Context, wake func(cause string)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-n.m.needs.wake:
			wake("sim")
		}
	}
}

// mayPreempt reports whether a pod may have to make room for a critical one, which waits for
// what the pod has. m.mu is held.
func (m *machine) mayPreempt(p *pod) bool {
	if !m.node || !m.waits(p) {
		return false
	}
	for _, q := range m.pods {
		// A static pod that was rejected begins anew with the next agent.
		if q.critical() && p.lesser(q) && q.wanted && (!q.over || q.static && q.rejected) && m.waits(q) && m.running(q.object.UID, q.object.Spec.Containers[0].Name) == 0 {
			p.preempted = true
		}
	}
	return p.preempted
}

// judgePreempted looks at a status that says that a pod was ended for a critical one. m.mu is held.
func (m *machine) judgePreempted(p *pod, st *v1.PodStatus) {
	if st.Reason != "Preempting" {
		return
	}
	// One that ran was judged when it was ended.
	if !p.preempted && !m.mayPreempt(p) && m.troubled == 0 && time.Since(m.healed) > startBound {
		m.wrong("%s was preempted, and no critical pod waits for what it has", p.object.Name)
	}
	if p.static { // it begins anew when the other one is gone
		p.rejected, p.anew = true, false
	}
}

// mayEvict reports whether an instance may be ended since its node runs short, and looks at
// the choice of the pod. m.mu is held.
func (m *machine) mayEvict(p *pod) bool {
	if p.chosen || m.choseBefore(p) {
		return true
	}
	if !m.pressed(time.Minute) || p.critical() {
		return false
	}
	if !p.evicting.IsZero() && time.Since(p.evicting) < time.Minute {
		return true
	}
	p.evicting = time.Now()
	var wrong string
	for _, what := range []string{"memory", "disk"} {
		if !m.short(what, time.Minute) {
			continue
		}
		if wrong = m.greedier(what, p); wrong == "" {
			if what == "disk" {
				m.judgeReclaimed()
			}
			return true
		}
	}
	m.wrong("%s is evicted, and %s", p.object.Name, wrong)
	return true
}

// choseBefore reports whether a pod was chosen a while ago, or by an earlier life that had it on
// record. It ends as soon as that can be done, whatever the node is short of then. m.mu is held.
func (m *machine) choseBefore(p *pod) bool {
	if at := m.live.chose(p); !at.IsZero() {
		return time.Since(at) >= time.Minute
	}
	return m.onRecord(p, "Evicted")
}

// onRecord reports whether the disk has a status of a pod that nobody has taken yet, and that has a
// reason: a next agent goes on with its end. m.mu is held.
func (m *machine) onRecord(p *pod, reason string) bool {
	record, err := os.ReadFile(filepath.Join(m.root(), "unsent", string(p.object.UID)))
	return err == nil && strings.Contains(string(record), strconv.Quote(reason))
}

// noteChosen notes that a pod was chosen, or preempted, while the runtime is away. It ends when that is
// back, whatever the node is short of then, and whoever waits.
func (m *machine) noteChosen(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := m.instanceOf(id); m.down && i != nil {
		p := m.pods[i.uid]
		p.chosen = p.chosen || !m.live.chose(p).IsZero()
		m.mayPreempt(p)
	}
}

// greedier names a pod that should have been evicted before p when memory or disk is short; ""
// if there is none. One that was chosen and does not end is not waited for: by the spec of
// evictions (eviction.md), a kill that fails counts as an eviction, and others are chosen
// after a while. m.mu is held.
func (m *machine) greedier(what string, p *pod) string {
	exceeds := func(q *pod) int64 {
		var asks int64
		if what == "memory" {
			asks = rank.Request(q.object, v1.ResourceMemory) >> 20
		}
		return m.uses(what, q) - asks
	}
	mine := exceeds(p)
	for _, q := range m.pods {
		if q == p || q.critical() || q.priority() != p.priority() || q.over || !q.evicting.IsZero() || !q.wanted || m.hasFault(q) || m.uses(what, q) == 0 || m.young(q) || !m.live.chose(q).IsZero() {
			continue
		}
		if theirs := exceeds(q); theirs > 0 && theirs > mine {
			return fmt.Sprintf("%s uses %d Mi of %s more than it asks for, and %s %d Mi", p.object.Name, mine, what, q.object.Name, theirs)
		}
	}
	return ""
}

// young reports whether a pod began a moment ago. m.mu is held.
func (m *machine) young(p *pod) bool {
	for _, i := range m.made {
		if i.uid == p.object.UID && m.runs(i) && time.Since(i.started) < restarted {
			return true
		}
	}
	return time.Since(p.since) < restarted
}

// judgeEvicted looks at a status that says that a pod was evicted, or not admitted for
// pressure. m.mu is held.
func (m *machine) judgeEvicted(p *pod, st *v1.PodStatus) {
	if st.Reason != "Evicted" || p.evicted {
		return
	}
	p.evicted = true
	bound := pressureBound
	if strings.HasPrefix(st.Message, "The node was low on resource") {
		bound = 2 * time.Minute
	}
	// One that ran was judged when it was ended; a status may come long after that, also of one
	// that came to its end by itself while the runtime did not answer.
	if p.evicting.IsZero() && !m.pressed(bound) && m.troubled == 0 && time.Since(m.healed) > startBound {
		m.wrong("%s was evicted, and there was no pressure: %s", p.object.Name, st.Message)
	}
}

package sim

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// What may begin while the node runs short. Spec of evictions, admission: critical pods always;
// while memory alone is short, those that request some and those that tolerate it; else nobody.

// pressedBy is how long the figures that a life has read have said that something is short.
type pressedBy struct{ since, last time.Time }

// surePressure is how long a condition of pressure holds for certain after its cause was read:
// it is 5 minutes by the kubelet's default.
const surePressure = 5*time.Minute - 10*time.Second

// reads notes what a life has read: from then on, it knows of the pressure. m.mu is held.
func (l *life) reads(what string, leftMi int64) {
	least := int64(memoryLeastMi)
	if what == "disk" {
		least = diskLeastMi
	}
	if leftMi >= least {
		return
	}
	now := time.Now()
	if w := l.pressed[what]; w == nil || now.Sub(w.last) > surePressure {
		l.pressed[what] = &pressedBy{since: now, last: now}
	} else {
		w.last = now
	}
}

// knewOf reports whether a life knew of pressure all the time from the coming of a pod until now.
// m.mu is held.
func (l *life) knewOf(what string, p *pod) bool {
	w := l.pressed[what]
	return w != nil && p.came.Sub(w.since) > time.Second && time.Since(w.last) < surePressure
}

// judgeAdmission looks at a pod that begins while the node runs short. m.mu is held.
func (m *machine) judgeAdmission(p *pod) {
	if !m.node || m.live == nil || p == nil || p.critical() {
		return
	}
	if m.live.knewOf("disk", p) {
		m.wrong("%s begins while the node has too little disk", p.object.Name)
	}
	if m.live.knewOf("memory", p) && p.bestEffort() && !p.toleratesMemory() {
		m.wrong("%s begins while the node has too little memory, and requests none", p.object.Name)
	}
}

// judgeKeptOut looks at a pod that was rejected since the node runs short. m.mu is held.
func (m *machine) judgeKeptOut(p *pod, st *v1.PodStatus) {
	on, kept := strings.CutPrefix(st.Message, "Pod was rejected: The node had condition: ")
	if !kept {
		return
	}
	if p.critical() {
		m.wrong("%s is critical, and was not admitted: %s", p.object.Name, st.Message)
	}
	if strings.HasPrefix(on, "[MemoryPressure]") && (!p.bestEffort() || p.toleratesMemory()) {
		m.wrong("%s was not admitted, and may be on a node that is short of memory: %s", p.object.Name, st.Message)
	}
}

// bestEffort reports whether no container of a pod asks for CPUs or memory.
func (p *pod) bestEffort() bool {
	for _, list := range [][]v1.Container{p.object.Spec.InitContainers, p.object.Spec.Containers} {
		for _, c := range list {
			for _, of := range []v1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
				if !of.Cpu().IsZero() || !of.Memory().IsZero() {
					return false
				}
			}
		}
	}
	return true
}

func (p *pod) toleratesMemory() bool { return len(p.object.Spec.Tolerations) > 0 }

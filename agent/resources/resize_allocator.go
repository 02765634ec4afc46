package resources

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
)

// Recall implements part.Allocator. A pod gets the allocation of its record. If there is no
// record, it gets the resources with which its containers were created, and if there are no
// containers either, the requested resources.
func (p *Resize) Recall(pod *v1.Pod, obs *observed.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.pods[pod.UID]
	if s == nil {
		s = &state{allocated: allocationOf(pod)}
		p.pods[pod.UID] = s
		if a := p.read[pod.UID]; a != nil {
			delete(p.read, pod.UID)
			s.remember(a)
		}
	}
	s.asks = pod
	if a := p.left[pod.UID]; a != nil {
		delete(p.left, pod.UID)
		s.inherit(a)
	}
	s.learn(obs, p.isRestored())
}

// Learn implements part.Allocator. If the pod requests other resources than those with which its
// running containers were created, the next housekeeping decides on the request.
func (p *Resize) Learn(uid types.UID, obs *observed.Pod) {
	if p.learn(uid, obs) {
		p.host.Housekeep()
	}
}

func (p *Resize) learn(uid types.UID, obs *observed.Pod) (queued bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.pods[uid]
	return s != nil && !s.known && s.learn(obs, p.isRestored())
}

// Allocated implements part.Allocator.
func (p *Resize) Allocated(pod *v1.Pod) *v1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.pods[pod.UID]; s != nil {
		return s.allocated.apply(pod)
	}
	return pod
}

// Changed implements part.Allocator: the requested resources are allocated now, or the pod waits.
func (p *Resize) Changed(pod *v1.Pod) *v1.Pod { return p.changed(pod, "pod_updated") }

// changed is Changed with a trigger, which is a label of metrics.
func (p *Resize) changed(pod *v1.Pod, trigger string) *v1.Pod {
	has, decide := p.ask(pod, p.host.AllReady())
	if !decide {
		return has
	}
	if reason, message, detail := p.host.CheckResize(has, pod); reason != "" {
		if p.wait(pod, reason, message) {
			if reason == v1.PodReasonInfeasible {
				p.met.infeasible.WithLabelValues(detail).Inc()
			}
			p.host.Event(pod, nil, v1.EventTypeWarning, "Resize"+reason, message)
			p.host.Resync(pod.UID) // for its status and its record
		}
		return has
	}
	p.allocate(pod, trigger)
	p.host.Event(pod, nil, v1.EventTypeNormal, "ResizeStarted", "Pod resize started")
	return pod
}

// ask records a pod's newest version. allocated is this version with the resources that the pod
// has now. decide reports whether the request has to be decided on. ready means that the running
// pods and their resources are known; as long as it is false, decide is false, too.
func (p *Resize) ask(pod *v1.Pod, ready bool) (allocated *v1.Pod, decide bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.pods[pod.UID]
	if s == nil {
		return pod, false
	}
	p.met.countRequested(s.asks, pod)
	s.asks = pod
	allocated = s.allocated.apply(pod)
	if allocated == pod {
		p.endWait(s)
		return pod, false
	}
	if !ready || !s.known || !p.isRestored() {
		s.queued = true
		return allocated, false
	}
	return allocated, true
}

// wait makes a pod wait for its request, and reports whether its condition changed.
func (p *Resize) wait(pod *v1.Pod, reason, message string) (news bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.pods[pod.UID]
	if s == nil {
		return false
	}
	c, news := s.wait(reason, message)
	p.setPending(s, c)
	return news
}

// allocate allocates a pod's request. Its record is written before its containers are changed.
func (p *Resize) allocate(pod *v1.Pod, trigger string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.pods[pod.UID]
	if s == nil {
		return
	}
	if s.pending != nil && s.pending.Reason == v1.PodReasonDeferred {
		p.met.accepted.WithLabelValues(trigger).Inc()
	}
	s.allocated, s.record, s.urgent = allocationOf(pod), true, true
	p.setPending(s, nil)
	p.proceed(s, pod, nil)
}

// endWait ends a pod's wait, if there is one. The caller holds p.mu.
func (p *Resize) endWait(s *state) { p.setPending(s, nil) }

// setPending sets the condition of a pod that waits for a resize. If c is nil, it removes the
// condition. The caller holds p.mu.
func (p *Resize) setPending(s *state, c *v1.PodCondition) {
	p.met.countPending(s.pending, c)
	s.pending, s.queued = c, false
}

// Conditions implements part.Allocator.
func (p *Resize) Conditions(uid types.UID) []v1.PodCondition {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.pods[uid]
	if s == nil {
		return nil
	}
	var out []v1.PodCondition
	for _, c := range []*v1.PodCondition{s.pending, s.progress} {
		if c != nil {
			out = append(out, *c)
		}
	}
	return out
}

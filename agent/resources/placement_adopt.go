package resources

import (
	"slices"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cpumgr"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/numa"
)

// earlyPlacement records calls for pods before the allocations are known.
type earlyPlacement struct {
	adopted []*v1.Pod
	stopped map[types.UID]bool
}

// drop removes a pod from the list of adopted pods.
func (e *earlyPlacement) drop(uid types.UID) {
	e.adopted = slices.DeleteFunc(e.adopted, func(pod *v1.Pod) bool { return pod.UID == uid })
}

// stopEarly records that a pod has stopped before Restore has finished, so that Restore
// skips it.
func (p *Placement) stopEarly(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.restored {
		p.early.drop(uid)
		p.early.stopped[uid] = true
	}
}

// Adopt implements part.Reserver: a running pod keeps its CPUs and memory. Before Restore is done,
// the pod is recorded, and Restore adopts it.
func (p *Placement) Adopt(pod *v1.Pod) {
	if p.idle {
		return
	}
	p.mu.Lock()
	var problems []error
	if p.restored {
		problems = p.adopt(pod)
	} else {
		p.early.drop(pod.UID) // an older version
		p.early.adopted = append(p.early.adopted, pod)
	}
	p.mu.Unlock()
	for _, err := range problems {
		p.cfg.Log.Warn("running container cannot keep its CPUs or memory", zap.String("pod", pod.Namespace+"/"+pod.Name), zap.Error(err))
	}
}

// adopt makes a running pod keep its CPUs and memory. It returns an error for each
// resource that the pod cannot keep. The caller holds p.mu.
func (p *Placement) adopt(pod *v1.Pod) []error {
	n := fit.Pod(pod)
	if e := p.pods[pod.UID]; e != nil && e.from != fromContainers {
		e.pod, e.from = n, fromSpec
		return nil
	}
	// Only the running containers are known.
	live := p.withKubelet(pod.UID, p.liveOf(pod.UID))
	node := p.node
	node.State = node.Without(n.UID)
	s, problems := node.Adopt([]numa.Pod{n}, map[string]fit.Running{n.UID: live})
	node.State = s
	if len(live.CPUs)+len(live.Nodes) == 0 && !p.anyLive(pod.UID) { // a sandbox without containers: the pod is about to start
		if r, err := node.Place(n); err == nil {
			s = r.State
		}
	} else {
		s.CPU = resume(node.CPU, s.CPU, n, live.CPUs)
	}
	p.decide(s)
	p.know(n)
	return problems
}

// resume allocates CPUs to containers of a running pod that are between two starts. Init containers
// are assumed to have completed.
func resume(policy cpumgr.Policy, s cpumgr.State, pod numa.Pod, live map[string]numa.CPUSet) cpumgr.State {
	for i, c := range pod.Containers {
		if _, runs := live[c.Name]; runs || c.Kind == numa.Init {
			continue
		}
		if next, err := policy.Allocate(s, pod, i, numa.Hint{}); err == nil {
			s = next
		}
	}
	return s
}

package resources

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podmeta"
)

// waiting is a resize that waits for a decision or for free resources.
type waiting struct {
	asks, has *v1.Pod
	since     time.Time
}

// Housekeep implements part.Housekeeper: it decides again on waiting resizes, and passes the pods
// with new allocations to their workers.
func (p *Resize) Housekeep([]*v1.Pod) {
	for _, w := range p.waiting() {
		pod, ok := p.host.Pod(w.asks.UID)
		if !ok || p.ending(pod.UID) {
			continue
		}
		if p.changed(pod, "periodic_retry") == pod {
			p.host.Update(pod)
		}
	}
}

// ending reports whether a pod is terminating or has ended.
func (p *Resize) ending(uid types.UID) bool {
	w, ok := p.host.Worker(uid)
	return ok && !w.TerminatingAt.IsZero()
}

// waiting returns the waiting resizes in the order of their decision: first pods that request no
// more than they have, then by priority, then Guaranteed pods, then by the time at which they began
// to wait.
func (p *Resize) waiting() []waiting {
	list := p.undecided()
	slices.SortFunc(list, func(x, y waiting) int {
		return cmp.Or(
			trueFirst(x.takesNoMore(), y.takesNoMore()),
			cmp.Compare(priority(y.asks), priority(x.asks)),
			trueFirst(podmeta.QOS(x.asks) == v1.PodQOSGuaranteed, podmeta.QOS(y.asks) == v1.PodQOSGuaranteed),
			x.since.Compare(y.since),
			cmp.Compare(x.asks.UID, y.asks.UID),
		)
	})
	return list
}

func (p *Resize) undecided() []waiting {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isRestored() {
		return nil
	}
	var out []waiting
	for _, s := range p.pods {
		if s.undecided() {
			out = append(out, waiting{asks: s.asks, has: s.allocated.apply(s.asks), since: s.waitsSince})
		}
	}
	return out
}

func priority(pod *v1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

func (w waiting) takesNoMore() bool {
	had := podmeta.Requests(w.has)
	for name, q := range podmeta.Requests(w.asks) {
		if q.Cmp(had[name]) > 0 {
			return false
		}
	}
	return true
}

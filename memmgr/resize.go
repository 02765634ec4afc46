package memmgr

import (
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// staticResize is the label value under which the kubelet counts rejected resizes.
const staticResize = "guaranteed_pod_memory_manager_static_policy"

// Resize returns an [*InfeasibleError] if a Guaranteed pod's requests of memory or huge pages
// change. As in the kubelet, an assignment cannot change while processes use it.
func (p *Static) Resize(_ State, current, wanted numa.Pod) error {
	if !current.Guaranteed || sameRequests(current, wanted) {
		return nil
	}
	return &InfeasibleError{Pod: current.UID, Detail: staticResize}
}

func sameRequests(a, b numa.Pod) bool {
	whole := func(p numa.Pod) []Amount {
		if p.Resources == nil {
			return nil
		}
		return amounts(*p.Resources)
	}
	return slices.Equal(whole(a), whole(b)) && slices.EqualFunc(a.Containers, b.Containers, func(c, d numa.Container) bool {
		return slices.Equal(amounts(c.Resources), amounts(d.Resources))
	})
}

package resources_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/numa"
)

// running are the cpusets of the containers that run, by name.
func (n *placementNode) running() map[string]numa.CPUSet {
	out := map[string]numa.CPUSet{}
	list, err := n.rt.ListContainers(context.Background(), nil)
	if err != nil {
		n.t.Error(err)
	}
	for _, c := range list {
		st, err := n.rt.ContainerStatus(context.Background(), c.GetId(), false)
		if err != nil || st.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
			continue // it went meanwhile
		}
		set, err := numa.ParseCPUs(st.GetStatus().GetResources().GetLinux().GetCpusetCpus())
		if err != nil {
			n.t.Error(err)
		}
		out[c.GetMetadata().GetName()] = set
	}
	return out
}

// Pods that come and go side by side never share the CPUs that are their own.
func TestSideBySide(t *testing.T) {
	n := newNode(t)
	n.start()
	var all sync.WaitGroup
	for worker := range 6 {
		all.Go(func() {
			mine := *n // with records of its own
			mine.sandboxes, mine.ids = map[types.UID]string{}, map[string]string{}
			for turn := range 15 {
				name := fmt.Sprintf("p%d-%d", worker, turn)
				pod, own := shares(name), worker%3 > 0
				if own {
					pod = owns(name, fmt.Sprint(worker%3))
				}
				mine.cycle(pod, own)
			}
		})
	}
	all.Wait()
	if err := n.p.Sweep(t.Context(), func(types.UID) bool { return false }); err != nil {
		t.Error(err)
	}
	if got := n.checkpoints(); len(got) > 0 {
		t.Errorf("checkpoints %v", got)
	}
	if _, no := n.reserve(owns("all", "7")); no != nil {
		t.Error(no)
	}
}

// cycle starts a pod, looks at it and ends it.
func (n *placementNode) cycle(pod *v1.Pod, own bool) {
	if _, no := n.reserve(pod); no != nil {
		n.t.Error(no)
		return
	}
	if err := n.sync(pod); err != nil {
		n.t.Error(err)
		return
	}
	sets := n.running()
	for name, set := range sets {
		if own && name != pod.Name && set.IntersectLen(sets[pod.Name]) > 0 {
			n.t.Errorf("%s has CPUs %s, and %s has %s for its own", name, set, pod.Name, sets[pod.Name])
		}
	}
	n.end(pod)
}

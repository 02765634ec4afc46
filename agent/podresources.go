package agent

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cpumgr"
	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/devicemgr/podresources"
	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
)

// newPodResources makes the service that tells who has which CPUs, memory and
// devices; nil, if it has no socket.
func (a *Agent) newPodResources() (*podresources.Server, error) {
	c := &a.cfg
	if c.PodResourcesSocket == "" {
		return nil, nil
	}
	cfg := podresources.Config{Socket: c.PodResourcesSocket, Pods: activePods{a}, Claims: c.Claims, Log: c.Log.Named("podresources"), Metrics: c.Metrics}
	if d, ok := c.Devices.(podresources.Devices); ok {
		cfg.Devices = d
	}
	if a.placement != nil {
		cfg.CPUs, cfg.Memory = placedCPUs{a.placement}, placedMemory{a.placement}
	}
	return podresources.New(cfg)
}

var _ podresources.Devices = (*devicemgr.Manager)(nil)

// sourcesPatience is how long the answer to who has what waits for sources that
// do not say what should run.
const sourcesPatience = time.Minute

// runPodResources serves until ctx ends, from the moment on when it is known which
// pods there are: to those who ask, a pod that is not told has nothing.
func (a *Agent) runPodResources(ctx context.Context) error {
	if a.podResources == nil {
		return nil
	}
	late := time.NewTimer(sourcesPatience)
	defer late.Stop()
	select {
	case <-ctx.Done():
		return nil
	case <-a.settled:
	case <-late.C:
	}
	return a.podResources.Run(ctx)
}

// activePods are the pods that hold something of the node.
type activePods struct{ a *Agent }

// ActivePods are those that were admitted, and those that run and have not been
// taken up yet.
func (p activePods) ActivePods() []*v1.Pod {
	active := p.a.activePods(&v1.Pod{})
	listed := map[types.UID]bool{}
	for _, pod := range active {
		listed[pod.UID] = true
	}
	for _, pod := range p.a.pods.Pods() {
		if obs, _ := p.a.pleg.Get(pod.UID); !listed[pod.UID] && !p.a.workers.KnownTerminated(pod.UID) && obs.AnyRunning() {
			active = append(active, pod)
		}
	}
	return active
}

// placedCPUs tell of CPUs that containers have for their own.
type placedCPUs struct{ p *placement }

func (c placedCPUs) Exclusive(uid types.UID, container string) numa.CPUSet {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	return c.p.node.State.CPU.Exclusive(string(uid), container)
}

func (c placedCPUs) Allocatable() numa.CPUSet {
	if s, ok := c.p.node.CPU.(*cpumgr.Static); ok { // it never changes
		return s.Allocatable()
	}
	return numa.CPUSet{}
}

// placedMemory tells of memory that was given to containers.
type placedMemory struct{ p *placement }

func (m placedMemory) Blocks(uid types.UID, container string) []podresources.Block {
	m.p.mu.Lock()
	defer m.p.mu.Unlock()
	return blocks(m.p.node.State.Memory.Blocks(string(uid), container))
}

func (m placedMemory) Allocatable() []podresources.Block {
	if s, ok := m.p.node.Memory.(*memmgr.Static); ok {
		return blocks(s.Allocatable())
	}
	return nil
}

func blocks(list []memmgr.Block) []podresources.Block {
	var out []podresources.Block
	for _, b := range list {
		out = append(out, podresources.Block{Type: string(b.Resource), Bytes: b.Bytes, Nodes: b.Nodes})
	}
	return out
}

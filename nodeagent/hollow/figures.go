package hollow

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/pressure"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/eviction"
	"github.com/nodewright/nodewright/eviction/rank"
	"github.com/nodewright/nodewright/nodeagent"
)

// processes are those that a node may have at most: pid_max of a machine of 64 bits.
const processes = 1 << 22

// figures are what the node and its pods use, for evictions: the memory of containers
// out of the node's, and disks that are empty.
type figures struct {
	rt              *critest.Runtime
	memory, storage int64
}

// figuresOf makes what eviction needs to know, which is no part of its own.
func figuresOf(cfg Config, rt *critest.Runtime) nodeagent.Maker {
	return func(b *nodeagent.Builder) (part.Part, error) {
		b.Facts.EvictionStats = &figures{rt: rt, memory: cfg.Memory, storage: cfg.Storage}
		return nil, nil //nolint:nilnil // it has no hooks
	}
}

// Memory implements eviction.Stats.
func (f *figures) Memory(context.Context) (eviction.Memory, error) {
	var used int64
	for _, n := range f.rt.MemoryUsed() {
		used += int64(min(n, 1<<56)) //nolint:gosec // bounded
	}
	m := &eviction.MemoryFigure{Observation: rank.Observation{Available: max(0, f.memory-used), Capacity: f.memory, Time: time.Now()}}
	return eviction.Memory{Node: m}, nil
}

// Disks implements eviction.Stats.
func (f *figures) Disks(context.Context) (eviction.Disks, error) {
	o := &rank.Observation{Available: f.storage, Capacity: f.storage, Time: time.Now()}
	return eviction.Disks{Node: eviction.Filesystem{Device: "hollow", Bytes: o, Inodes: o}}, nil
}

// Processes implements eviction.Stats.
func (f *figures) Processes(context.Context) (rank.Observation, error) {
	return rank.Observation{Available: processes, Capacity: processes, Time: time.Now()}, nil
}

// Pods implements eviction.Stats.
func (f *figures) Pods(_ context.Context, pods []*v1.Pod, _ eviction.Want) (map[types.UID]*rank.Usage, error) {
	used, now := f.rt.MemoryUsed(), time.Now()
	out := make(map[types.UID]*rank.Usage, len(pods))
	for _, p := range pods {
		out[p.UID] = &rank.Usage{Time: now, Memory: int64(min(used[string(p.UID)], 1<<56))} //nolint:gosec // bounded
	}
	return out, nil
}

// collection is nodeagent.Collection where there are no logs that the kernel could
// tell of, whose watches a machine has few of.
func collection(b *nodeagent.Builder) (part.Part, error) {
	images, containers := b.Config.ImageGC(), b.Config.DeadContainers
	p, err := pressure.NewCollection(pressure.CollectionConfig{
		Runtime: b.Runtime, Images: b.Images, ImagePolicy: &images, ContainerPolicy: &containers, Logs: pressure.LogRotation{Off: true},
		PodLogsDir: b.Config.PodLogsDir, Store: b.Store("imagegc", "imagegc"), Log: b.Log, Metrics: b.Metrics,
	})
	if err != nil {
		return nil, err
	}
	b.Facts.ListImages, b.Facts.Reclaimer = p.Images, p.Reclaimer()
	return p, nil
}

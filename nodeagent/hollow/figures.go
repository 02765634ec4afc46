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

// processes is the limit of processes of a node: pid_max of a 64-bit machine.
const processes = 1 << 22

// figures are the usage of the node and its pods, for evictions: the memory of
// containers, and empty disks.
type figures struct {
	rt              *critest.Runtime
	memory, storage int64
}

// figuresOf returns the maker of the statistics for evictions, which adds no part.
func figuresOf(cfg Config, rt *critest.Runtime) nodeagent.Maker {
	return func(b *nodeagent.Builder) (part.Part, error) {
		b.Facts.EvictionStats.Give(&figures{rt: rt, memory: cfg.Memory, storage: cfg.Storage})
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

// collection makes the same part as nodeagent.Collection, but without log rotation: it watches
// files, and the number of watches on a machine is limited.
func collection(b *nodeagent.Builder) (part.Part, error) {
	images, containers := b.Config.ImageGC(), b.Config.DeadContainers
	p, err := pressure.NewCollection(pressure.CollectionConfig{
		Runtime: b.Runtime, Images: b.Images, ImagePolicy: &images, ContainerPolicy: &containers, Logs: pressure.LogRotation{Off: true},
		PodLogsDir: b.Config.PodLogsDir, Store: b.Store("imagegc", "imagegc"), Log: b.Log, Metrics: b.Metrics,
	})
	if err != nil {
		return nil, err
	}
	b.Facts.ListImages = p.Images
	b.Facts.Reclaimer.Give(p.Reclaimer())
	return p, nil
}

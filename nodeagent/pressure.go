package nodeagent

import (
	"cmp"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/pressure"
	block "github.com/nodewright/nodewright/eviction"
	"github.com/nodewright/nodewright/eviction/rank"
	"github.com/nodewright/nodewright/node"
)

// Makers of parts that measure the node and act on resource shortage: each takes
// the statistics of earlier ones from Facts.

// Stats makes the part that measures the usage of the node and its pods: see
// [pressure.Stats].
func Stats(b *Builder) (part.Part, error) {
	p, err := pressure.NewStats(pressure.StatsConfig{
		NodeName: b.Node.Name, Runtime: b.Runtime, Images: b.Images,
		PodsCgroup: cmp.Or(b.PodsCgroup(), pressure.NoCgroup), SystemCgroups: b.host.all,
		RootDir: b.Config.RootDir, LogDir: b.Config.PodLogsDir, NoVolumes: b.Config.VolumeStatsAggPeriod.Duration < 0, Metrics: b.Metrics,
	})
	if err != nil {
		return nil, err
	}
	b.Facts.Usage = p
	b.Facts.EvictionStats.Give(p.ForEviction())
	return p, nil
}

// Collection makes the part that removes images, dead containers and old logs: see
// [pressure.Collection].
func Collection(b *Builder) (part.Part, error) {
	p, err := pressure.NewCollection(b.collection())
	if err != nil {
		return nil, err
	}
	b.Facts.ListImages = p.Images
	b.Facts.Reclaimer.Give(p.Reclaimer())
	return p, nil
}

// collection translates the configuration of garbage collection and log rotation.
// Policies are pointers to copies, so that the part may keep them.
func (b *Builder) collection() pressure.CollectionConfig {
	c := b.Config
	images, containers := c.ImageGC(), c.DeadContainers
	logs, rotate := c.LogRotation()
	return pressure.CollectionConfig{
		Runtime: b.Runtime, Images: b.Images,
		ImagePolicy: &images, ContainerPolicy: &containers, PinnedImages: b.Settings.PinnedImages,
		Logs: pressure.LogRotation{
			Off: !rotate, MaxSize: logs.MaxSize, MaxFiles: logs.MaxFiles, PodBudget: b.Settings.PodLogBudget, Workers: logs.Workers, Longest: logs.Longest, Poll: b.Settings.PollFiles,
		},
		PodLogsDir: c.PodLogsDir, ContainerLogsDir: b.containerLogs(),
		Store: b.Store("imagegc", "imagegc"), Log: b.Log, Metrics: b.Metrics,
	}
}

// Eviction makes the part that evicts pods when a resource is short: see
// [pressure.Eviction]. It needs [Stats], or another maker that sets
// Facts.EvictionStats.
func Eviction(b *Builder) (part.Part, error) {
	cfg, err := b.eviction()
	if err != nil {
		return nil, err
	}
	p, err := pressure.NewEviction(cfg)
	if err != nil {
		return nil, err
	}
	b.Facts.Pressure = p.Pressure
	return p, nil
}

// eviction translates thresholds and times. The error names an invalid threshold.
func (b *Builder) eviction() (pressure.EvictionConfig, error) {
	c := b.Config
	list, err := c.Thresholds()
	if err != nil {
		return pressure.EvictionConfig{}, err
	}
	return pressure.EvictionConfig{
		Stats: b.Facts.EvictionStats.Need(), Reclaim: b.Facts.Reclaimer.Need(),
		Thresholds: list, Notify: b.notices(list),
		Standalone: b.Cluster == nil, Hold: func() bool { return b.Facts.ShuttingDown() != nil }, Changed: b.Facts.Changed,
		Transition: c.EvictionPressureTransitionPeriod.Duration, MaxPodGraceSeconds: int64(c.EvictionMaxPodGracePeriod),
		IgnoreLimits: !*c.LocalStorageCapacityIsolation,
		Log:          b.Log.Named("eviction"), Metrics: b.Metrics,
	}, nil
}

// notices returns the notifiers of the kernel of the node's machine.
func (b *Builder) notices(list []rank.Threshold) []block.Notifier {
	if b.Hardware != nil {
		return b.Hardware.Notices
	}
	return pressure.KernelNotices(b.PodsCgroup(), node.CgroupV2(), list)
}

// Preemption makes the part that terminates lower priority pods for critical ones
// that do not fit: see [pressure.Preemption].
func Preemption(b *Builder) (part.Part, error) {
	return pressure.NewPreemption(pressure.PreemptionConfig{
		Standalone: b.Cluster == nil, Hold: func() bool { return b.Facts.ShuttingDown() != nil },
		Log: b.Log.Named("preemption"), Metrics: b.Metrics,
	})
}

// OOM makes the part that records the kernel's OOM kills: see [pressure.OOMKills]. For a node
// with Options.Hardware, it uses Hardware.KernelLog, and returns nil if that is nil.
func OOM(b *Builder) (part.Part, error) {
	cfg := pressure.OOMKillsConfig{Log: b.Log.Named("oom"), Metrics: b.Metrics}
	if h := b.Hardware; h != nil {
		if h.KernelLog == nil {
			return nil, nil //nolint:nilnil // a node without this part
		}
		cfg.Open = h.KernelLog
		return pressure.NewOOMKills(cfg)
	}
	// In a container the kernel's log may not be readable; cgroup v2 has its own counters of OOM
	// kills.
	if root := b.PodsCgroup(); root != "" && node.CgroupV2() {
		cfg.Fallback = oomCounters(root)
	}
	return pressure.NewOOMKills(cfg)
}

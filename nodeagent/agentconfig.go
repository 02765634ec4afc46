package nodeagent

import (
	"cmp"
	"os"
	"path/filepath"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/images"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/podruntime"
	"github.com/nodewright/nodewright/podspec"
	"github.com/nodewright/nodewright/statusmgr"
)

// Translation of a KubeletConfiguration into the configuration of package agent. kubeletconfig.Load
// sets all pointers that are dereferenced here.

// agent returns the configuration of the node's agent. parts are in the order of their makers.
// more are additional sources of pods, from the embedding program. It returns an error if a
// component cannot be created, such as a credential provider.
func (b *Builder) agent(parts []part.Part, more []podmgr.Source) (agent.Config, error) {
	sources, err := b.sources()
	if err != nil {
		return agent.Config{}, err
	}
	// Kept in the builder, since PullImage uses the same keyrings.
	if b.rings, err = b.keyrings(); err != nil {
		return agent.Config{}, err
	}
	c, s := b.Config, &b.Settings
	cfg := agent.Config{
		Node:    b.Node,
		Paths:   agent.Paths{Root: c.RootDir, PodLogs: c.PodLogsDir, ContainerLogs: cmp.Or(b.containerLogs(), "-")},
		Runtime: b.Runtime,
		Images: agent.Images{
			Service: b.Images, QPS: float64(*c.RegistryPullQPS), Burst: int(c.RegistryBurst),
			Parallel: c.ParallelPulls(), ParallelPerRegistry: s.PullsPerRegistry,
			Verify: images.Verify(c.ImagePullCredentialsVerificationPolicy), Allowlist: c.PreloadedImagesVerificationAllowlist, Keyrings: b.rings,
		},
		Sources: append(sources, more...),
		Parts:   parts,
		Cgroups: b.cgroups,
		Pods:    b.pods(),
		Probes:  agent.Probes{ParallelExec: s.ExecProbes, Fast: s.FastProbes},
		DNS:     agent.DNS{ClusterDomain: c.ClusterDomain, ClusterDNS: c.ClusterDNS, ResolvConf: cmp.Or(*c.ResolverConfig, "-")},
		Log:     b.Log, Metrics: b.Metrics,
	}
	cfg.Volumes.Projects = b.Config.ProjectQuotas()
	if h := b.Hardware; h != nil {
		cfg.Volumes.BootID = h.Machine.BootID
	}
	// A cluster receives the statuses. Without one they are stored in files in the root directory.
	// The sink is created here, so that Options.Agent can see it.
	if b.Cluster != nil {
		b.Cluster.into(&cfg)
		return cfg, nil
	}
	cfg.Status.Sink, err = statusmgr.NewFileSink(statusmgr.FileSinkConfig{
		Dir: b.Path("status"),
		OnCorrupt: func(file, setAside string, err error) {
			b.Log.Warn("damaged status set aside", zap.String("file", file), zap.String("as", setAside), zap.Error(err))
		},
	})
	return cfg, err
}

// pods returns how the agent runs pods. Each value comes from a field of the KubeletConfiguration
// or of Settings.
func (b *Builder) pods() agent.Pods {
	c := b.Config
	p := agent.Pods{
		SyncFrequency: c.SyncFrequency.Duration, StartsInFlight: b.Settings.StartsInFlight,
		UnsafeSysctls: c.AllowedUnsafeSysctls, DefaultSysctls: c.DefaultPodSysctls, SeccompDefault: *c.SeccompDefault,
		NoCPUQuota: !*c.CPUCFSQuota, CPUPeriod: c.CPUCFSQuotaPeriod.Duration, SingleProcessOOMKill: *c.SingleProcessOOMKill,
	}
	if throttling, reserve, on := c.MemoryQoS(); on {
		p.MemoryQoS = &podspec.MemoryQoS{Throttling: throttling, Reserve: reserve, PageSize: int64(os.Getpagesize())}
	}
	if d := c.CrashLoopBackOff.MaxContainerRestartPeriod; d != nil {
		p.CrashBackoff = podruntime.DoublingBackoff{Max: d.Duration}
	}
	return p
}

// sources returns the sources of pods that the configuration names: the manifests directory, the
// URL, or both. Cluster.into adds the cluster's source.
func (b *Builder) sources() (sources []podmgr.Source, err error) {
	c, log := b.Config, b.Log.Named("podmgr")
	if c.StaticPodPath != "" {
		// Static pods that a kubelet left keep their UIDs, and so go on running.
		running := &staticPods{runtime: b.Runtime, dir: filepath.Join(c.RootDir, "pods"), log: log}
		s, err := podmgr.Directory(podmgr.DirectoryConfig{
			Found: running.find,
			Path:  c.StaticPodPath, NodeName: b.Node.Name, Rescan: c.FileCheckFrequency.Duration, Poll: b.Settings.PollFiles,
			Memory: part.OpenStore(filepath.Join(c.RootDir, "manifests"), b.Log), Log: log,
		})
		if err != nil {
			return nil, err
		}
		b.debugged = append(b.debugged, &debugged{Source: s})
	}
	if c.StaticPodURL != "" {
		s, err := podmgr.HTTP(podmgr.HTTPConfig{
			URL: c.StaticPodURL, Header: c.StaticPodURLHeader, NodeName: b.Node.Name, Interval: c.HTTPCheckFrequency.Duration, Log: log,
		})
		if err != nil {
			return nil, err
		}
		b.debugged = append(b.debugged, &debugged{Source: s})
	}
	for _, s := range b.debugged {
		sources = append(sources, s)
	}
	return sources, nil
}

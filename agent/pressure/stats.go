package pressure

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/internal/promshare"
	"github.com/nodewright/nodewright/node/stats"
	"github.com/nodewright/nodewright/volumemgr"
)

// statsName is the name of the part.
const statsName = "stats"

// NoCgroup is the [StatsConfig.PodsCgroup] of a node on which the runtime chooses the cgroups of
// pods.
const NoCgroup = "-"

// StatsRuntime has the calls of a container runtime for stats. *cri.Client implements it.
type StatsRuntime interface {
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	// ListContainerStats may return Unimplemented.
	ListContainerStats(ctx context.Context, filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error)
}

// ImageService has the calls of an image service for stats. *cri.Client implements it.
type ImageService interface {
	ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
}

// StatsVolumes measures the volumes of a pod; *volumemgr.Manager implements it. If it fails, it
// returns the volumes that could be measured together with the error.
type StatsVolumes interface {
	Stats(ctx context.Context, uid types.UID) ([]volumemgr.Stats, error)
}

// StatsConfig configures [Stats]. NodeName, Runtime and Images are required. Every other field
// has a default for its zero value.
type StatsConfig struct {
	NodeName string
	Runtime  StatsRuntime
	Images   ImageService
	Volumes  StatsVolumes // the agent's volumes, if they can be measured

	// PodsCgroup is the cgroup of all pods, relative to the mount points of the cgroup
	// hierarchies. The default is /kubepods. If there is no such cgroup, set it to NoCgroup.
	PodsCgroup string
	// SystemCgroups returns other cgroups to report, by their names in the summary API: kubelet,
	// runtime, misc. It is called at each measurement, maybe from several goroutines. Cgroups
	// that do not exist are left out. If SystemCgroups is nil, none are reported.
	SystemCgroups func() map[string]string
	// RootDir is the agent's directory, whose file system is reported as the node's. The default
	// is /var/lib/kubelet.
	RootDir string
	// LogDir has a directory <namespace>_<name>_<uid> for each pod; /var/log/pods.
	LogDir string

	// NoVolumes disables the measurement of volumes, except those that count as local storage of
	// their pods, which may have limits.
	NoVolumes bool

	// Metrics is the registry for the collectors of /metrics/resource, of volumes and of logs.
	// Join registers them. If Metrics is nil, they are not exported.
	Metrics prometheus.Registerer
}

func (c *StatsConfig) validate() error {
	var errs []error
	for _, f := range []struct {
		field string
		set   bool
	}{{"NodeName", c.NodeName != ""}, {"Runtime", c.Runtime != nil}, {"Images", c.Images != nil}} {
		if !f.set {
			errs = append(errs, fmt.Errorf("field StatsConfig.%s is required", f.field))
		}
	}
	return errors.Join(errs...)
}

// Stats is the part that reports the usage of the node, its pods, containers and
// volumes.
//
//	p, err := pressure.NewStats(pressure.StatsConfig{
//		NodeName: name, Runtime: runtime, Images: runtime, Volumes: volumes,
//		PodsCgroup: pressure.NoCgroup, RootDir: root, LogDir: "/var/log/pods", Metrics: registry,
//	})
//	parts := []part.Part{p, ...}
//	summary, err := p.Summary(ctx)  // for /stats/summary
//	details, err := p.Details()     // for /metrics/cadvisor
//	figures := p.ForEviction()      // for package eviction
//
// It connects package github.com/nodewright/nodewright/node/stats, which reads cgroups,
// /proc and file systems, with a CRI runtime, the observations of the agent's pods, and
// the volumes.
//
// Its methods may be called from any goroutine, once an agent has it.
//
// # Hooks
//
// Join registers the metrics of /metrics/resource and of volumes. Run owns the
// measurements of volumes with a limit.
//
// # Ownership
//
// [NewStats] has no side effects. Values are read on request, in the caller's goroutine
// and within its context; callers within a second share one [Stats.Summary]. emptyDir
// volumes with a limit are an exception: for [Stats.ForEviction] their directories are
// walked in goroutines of [Stats.Run], only while it runs. So a disk that hangs delays
// neither the caller beyond its context nor other volumes.
//
// # Faults
//
// If some values cannot be read, the others are returned together with the error. If
// the runtime does not measure containers (no ListContainerStats), the values come from
// cgroups. A pod without running containers counts as using no memory.
type Stats struct {
	cfg   StatsConfig
	block *stats.Collector
	host  part.Host
	limit limitMeters
}

var (
	_ part.Joiner = (*Stats)(nil)
	_ part.Runner = (*Stats)(nil)
)

// NewStats checks cfg and returns a part.
func NewStats(cfg StatsConfig) (*Stats, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("stats: %w", err)
	}
	p := &Stats{cfg: cfg}
	c := stats.Config{
		NodeName: cfg.NodeName, Runtime: runtime{p}, PodsCgroup: cfg.PodsCgroup, SystemCgroups: cfg.SystemCgroups,
		RootDir: cfg.RootDir, LogDir: cfg.LogDir,
	}
	c.Volumes = volumes{p}
	var err error
	p.block, err = stats.New(c)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Name implements part.Part.
func (p *Stats) Name() string { return statsName }

// Join implements part.Joiner. It registers the metrics, which NewStats cannot do yet: a scrape
// calls the agent, which is not known before Join.
func (p *Stats) Join(h part.Host) error {
	if err := part.SetHost(&p.host, h); err != nil {
		return err
	}
	return promshare.Register(p.cfg.Metrics, p.block.ResourceMetrics(), p.block.VolumeMetrics(), p.block.LogMetrics())
}

// Run implements part.Runner: it runs the measurements of volumes with a limit.
func (p *Stats) Run(ctx context.Context) error {
	p.limit.run(ctx)
	return nil
}

// Summary returns the usage of the node, its pods and containers, as in the kubelet's
// /stats/summary. The result is at most a second old. It is shared and must not be changed. If
// something could not be measured, Summary returns the other values together with an error that
// joins all failures. The result is nil only if ctx ended.
func (p *Stats) Summary(ctx context.Context) (*statsapi.Summary, error) {
	return p.block.Summary(ctx)
}

// CPUAndMemory returns a Summary without file systems, networks and volumes.
func (p *Stats) CPUAndMemory(ctx context.Context) (*statsapi.Summary, error) {
	return p.block.CPUAndMemory(ctx)
}

// Totals measures the node, with disk and network, and CPU and memory of each pod. A pod of the
// result has only its UID and these two. The result is never nil. The error is about the pods: a
// value of the node that could not be measured is nil.
func (p *Stats) Totals(ctx context.Context) (*statsapi.Summary, error) { return p.block.Totals(ctx) }

// Devices returns the node's block devices that had I/O.
func (p *Stats) Devices() []stats.Device { return p.block.Devices() }

// Groups returns the cgroups that do not belong to a single pod: the cgroup of all pods, the
// cgroups of the QoS classes, and SystemCgroups.
func (p *Stats) Groups() ([]stats.Detail, error) { return p.block.Groups() }

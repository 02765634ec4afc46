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

// NoCgroup is the [StatsConfig.PodsCgroup] of a node whose pods are where the runtime
// puts them.
const NoCgroup = "-"

// StatsRuntime has the calls of a container runtime for stats. *cri.Client implements it.
type StatsRuntime interface {
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	// ListContainerStats may be Unimplemented.
	ListContainerStats(ctx context.Context, filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error)
}

// ImageService has the calls of an image service for stats. *cri.Client implements it.
type ImageService interface {
	ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
}

// StatsVolumes measures the volumes of a pod; *volumemgr.Manager does. What could be
// measured is returned beside the errors of the others.
type StatsVolumes interface {
	Stats(ctx context.Context, uid types.UID) ([]volumemgr.Stats, error)
}

// StatsConfig holds what [Stats] needs. NodeName, Runtime and Images are required; the
// zero value of every other field means the default named beside it.
type StatsConfig struct {
	NodeName string
	Runtime  StatsRuntime
	Images   ImageService
	Volumes  StatsVolumes // those of the agent, if they measure

	// PodsCgroup is the cgroup of all pods, below the mount points of cgroup
	// hierarchies; NoCgroup if there is none. /kubepods
	PodsCgroup string
	// SystemCgroups returns, at each reading, the cgroups to report beside the
	// pods', by the names of the summary API: kubelet, runtime, misc. One that
	// does not exist is left out. It may be called from several goroutines; nil
	// is none.
	SystemCgroups func() map[string]string
	// RootDir is the agent's directory, and so the node's file system;
	// /var/lib/kubelet
	RootDir string
	// LogDir holds a directory <namespace>_<name>_<uid> for each pod;
	// /var/log/pods
	LogDir string

	// NoVolumes leaves volumes out of the figures, but for those that count as local
	// storage of their pods, which may have limits.
	NoVolumes bool

	// Metrics takes the collectors of /metrics/resource, of volumes and logs when an
	// agent joins; not exported.
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

// Stats is the part that reports what its node, pods,
// containers and volumes use.
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
// It puts package node, which reads cgroups, /proc and file systems,
// together with a CRI runtime, with what the agent has observed of its pods, and
// with the volumes.
//
// Its methods may be called from any goroutine, once an agent has it.
//
// # Hooks
//
// Join keeps the agent and registers the metrics /metrics/resource is made of, and
// those of volumes; Run owns the measurements of volumes with a limit.
//
// # Ownership
//
// [NewStats] has no side effects. Figures are read when somebody asks, in the asker's
// goroutine and within the asker's context; a [Stats.Summary] not older than a
// second is shared by all who ask. The exception are emptyDir volumes that have
// a limit: for [Stats.ForEviction] they are walked in goroutines that [Stats.Run]
// owns, and only while it runs, so that a disk that hangs holds up neither the
// asker beyond its context nor the other volumes.
//
// # Faults
//
// What could be read is returned beside the error of what could not. A runtime
// that does not measure containers (no ListContainerStats) leaves the figures of
// cgroups. Pods of which the agent knows that nothing runs use no memory.
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

// NewStats checks cfg and returns a Part at rest.
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

// Join implements part.Joiner. Metrics are registered here and not before: a
// scrape asks the agent.
func (p *Stats) Join(h part.Host) error {
	if p.host != nil {
		return errors.New("stats: the part belongs to another agent already")
	}
	p.host = h
	if p.cfg.Metrics == nil {
		return nil
	}
	for _, c := range []prometheus.Collector{p.block.ResourceMetrics(), p.block.VolumeMetrics(), p.block.LogMetrics()} {
		if err := promshare.Register(p.cfg.Metrics, c); err != nil {
			return fmt.Errorf("stats: %w", err)
		}
	}
	return nil
}

// Run implements part.Runner: it owns the measurements of volumes with a limit.
func (p *Stats) Run(ctx context.Context) error {
	p.limit.run(ctx)
	return nil
}

// Summary is what the node and all that is on it use, as in the kubelet's
// /stats/summary, not older than a second. It holds what could be read even
// beside an error, which joins what could not; it is nil only if ctx ended. It is
// shared: it must not be changed.
func (p *Stats) Summary(ctx context.Context) (*statsapi.Summary, error) {
	return p.block.Summary(ctx)
}

// CPUAndMemory is a Summary without file systems, networks and volumes.
func (p *Stats) CPUAndMemory(ctx context.Context) (*statsapi.Summary, error) {
	return p.block.CPUAndMemory(ctx)
}

// Node is the node's part of a Summary, with disk and network, however many pods there are.
func (p *Stats) Node(ctx context.Context) (*statsapi.NodeStats, error) { return p.block.Node(ctx) }

// Devices are the node's block devices that have done something.
func (p *Stats) Devices() []stats.Device { return p.block.Devices() }

// Groups are the cgroups that hold no pod of their own: that of all pods, those of their
// classes, and those of the system that are known.
func (p *Stats) Groups() ([]stats.Detail, error) { return p.block.Groups() }

package stats

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/internal/diskusage"
	"github.com/nodewright/nodewright/internal/kernel"
)

// Config configures a [Collector]. NodeName and Runtime are required; the zero
// value of every other field means the default named beside it.
type Config struct {
	NodeName string
	Runtime  Runtime
	Volumes  Volumes // no volume stats

	// PodsCgroup is the cgroup of all pods, in the driver's form; "-" means none:
	// then the runtime measures containers; /kubepods
	PodsCgroup string
	// SystemCgroups returns the additional cgroups by their names in the summary
	// API: kubelet, runtime, misc. It is called at each reading, from several
	// goroutines. Missing cgroups are left out; nil: none.
	SystemCgroups func() map[string]string
	// RootDir is the agent's directory for pods: the node's file system, and the
	// files of each pod at pods/<uid>; /var/lib/kubelet
	RootDir string
	// LogDir holds a directory <namespace>_<name>_<uid> for each pod;
	// /var/log/pods
	LogDir string

	Cgroups fs.FS                      // /sys/fs/cgroup
	Proc    fs.FS                      // /proc
	Root    fs.FS                      // /, for logs and files of pods
	Statfs  func(string) (Disk, error) // Statfs; it may hang
}

const (
	// maxAge is the maximum age of an answer of Summary.
	maxAge = time.Second
	// timeout limits one scrape, and each call to the runtime, to a volume or a file system.
	timeout = 10 * time.Second
)

// noCgroup is the PodsCgroup of a node without one. The empty string means the
// default.
const noCgroup = "-"

// withDefaults returns the configuration with every optional field set, except Volumes
// and SystemCgroups, which may be nil.
func (c Config) withDefaults() Config {
	for _, s := range []struct {
		field *string
		def   string
	}{{&c.PodsCgroup, "/kubepods"}, {&c.RootDir, "/var/lib/kubelet"}, {&c.LogDir, "/var/log/pods"}} {
		if *s.field == "" {
			*s.field = s.def
		}
	}
	for _, f := range []struct {
		field *fs.FS
		def   string
	}{{&c.Cgroups, "/sys/fs/cgroup"}, {&c.Proc, "/proc"}, {&c.Root, "/"}} {
		if *f.field == nil {
			*f.field = kernel.Dir(f.def)
		}
	}
	if c.Statfs == nil {
		c.Statfs = statfs
	}
	return c
}

// Collector measures the usage of a node and its pods. Its methods may be called
// from any goroutine, and block on their sources. Their results are shared: do not
// change them. It need not be closed.
type Collector struct {
	cfg    Config
	kernel *kernel.Reader
	disks  disks
	rates  rates
	held   heldFiles

	// Two kinds of answers, each shared by concurrent callers.
	full, small shared[*statsapi.Summary]
}

// New checks cfg and returns a Collector. It reads nothing. The error names every
// invalid field.
func New(cfg Config) (*Collector, error) {
	cfg = cfg.withDefaults()
	var errs []error
	if cfg.NodeName == "" {
		errs = append(errs, errors.New("StatsConfig.NodeName is required"))
	}
	if cfg.Runtime == nil {
		errs = append(errs, errors.New("StatsConfig.Runtime is required"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("stats: %w", err)
	}
	reader := kernel.New(kernel.Options{Proc: kernel.Of(cfg.Proc), Cgroups: kernel.Of(cfg.Cgroups)})
	return &Collector{cfg: cfg, kernel: reader, disks: disks{statfs: cfg.Statfs}, held: heldFiles{
		root: cfg.RootDir, find: findHeld, device: func() uint64 { return deviceOf(cfg.RootDir) },
		counted: func(dir string) bool { _, err := diskusage.Quota(dir); return err == nil },
	}}, nil
}

func (m *Collector) cgroups() cgroups { return cgroups{m.kernel} }

// Summary returns all statistics, at most a second old. The error joins all failures; the
// result then has the values that could be read. The result is nil only if ctx ended.
// Summary blocks on files, the runtime and volumes, or on a call of another goroutine
// whose answer it shares.
func (m *Collector) Summary(ctx context.Context) (*statsapi.Summary, error) {
	return m.full.get(ctx, time.Now().Add(-maxAge), m.summary)
}

// CPUAndMemory returns a Summary without file systems, networks and volumes. It
// only lists at the runtime, unless cgroups of containers cannot be found. Errors
// are as in Summary.
func (m *Collector) CPUAndMemory(ctx context.Context) (*statsapi.Summary, error) {
	return m.small.get(ctx, time.Now().Add(-maxAge), m.smallSummary)
}

// Totals measures the node, with disk and network, and CPU and memory of each pod. A pod of the
// result has only its UID and these two. Four files are read for a pod, and the runtime is called
// once, for the file system of images. Without a cgroup of pods, the runtime measures them. The
// result is never nil. The error is about the pods: a value of the node that could not be measured
// is nil.
func (m *Collector) Totals(ctx context.Context) (*statsapi.Summary, error) {
	pods, err := m.podTotals(ctx)
	node, _ := m.readNode(ctx, true)
	m.rates.forget(time.Now())
	return &statsapi.Summary{Node: node, Pods: pods}, err
}

func (m *Collector) podTotals(ctx context.Context) ([]statsapi.PodStats, error) {
	if m.cfg.PodsCgroup == noCgroup {
		return m.readPods(ctx, false, nil, nil)
	}
	c := m.cgroups()
	dirs, err := c.pods(m.cfg.PodsCgroup)
	pods := make([]statsapi.PodStats, 0, len(dirs))
	for uid, d := range dirs {
		if u, err := c.readTotal(d.dir); err == nil && u.CPU != nil { // it may have been removed meanwhile
			ref := statsapi.PodReference{UID: string(uid)}
			pods = append(pods, statsapi.PodStats{PodRef: ref, CPU: cpuStats(u, m.rate(d.dir, u)), Memory: memoryStats(u)})
		}
	}
	return pods, err
}

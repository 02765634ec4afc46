package stats

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Config holds what a [Collector] needs. NodeName and Runtime are required; the
// zero value of every other field means the default named beside it.
type Config struct {
	NodeName string
	Runtime  Runtime
	Volumes  Volumes // no volume stats

	// PodsCgroup is the cgroup of all pods, in the driver's form; "-" says that
	// there is none, and the runtime is asked what containers use; /kubepods
	PodsCgroup string
	// SystemCgroups reports, at each reading, the cgroups to show beside the pods',
	// by the names of the summary API: kubelet, runtime, misc. One that is not
	// there is left out. It may be called from several goroutines; nil is none.
	SystemCgroups func() map[string]string
	// RootDir is where the agent keeps pods: the node's file system, and the
	// etc-hosts of each pod at pods/<uid>/etc-hosts; /var/lib/kubelet
	RootDir string
	// LogDir holds a directory <namespace>_<name>_<uid> for each pod;
	// /var/log/pods
	LogDir string

	// MaxAge is how old an answer of Summary may be; 1s
	MaxAge time.Duration
	// Timeout bounds an answer that metrics ask for, and in any answer each
	// question to the runtime, to volumes and to file systems; 10s
	Timeout time.Duration

	Cgroups fs.FS                      // /sys/fs/cgroup
	Proc    fs.FS                      // /proc
	Root    fs.FS                      // /, for logs and etc-hosts
	Statfs  func(string) (Disk, error) // Statfs; it may hang
}

// noCgroup is the PodsCgroup of a node that keeps none. An empty field means the
// default, so that it needs a value of its own.
const noCgroup = "-"

// withDefaults returns the configuration with every optional field set, but for
// Volumes and SystemCgroups, whose nil has a meaning.
func (c Config) withDefaults() Config {
	for _, s := range []struct {
		field *string
		def   string
	}{{&c.PodsCgroup, "/kubepods"}, {&c.RootDir, "/var/lib/kubelet"}, {&c.LogDir, "/var/log/pods"}} {
		if *s.field == "" {
			*s.field = s.def
		}
	}
	if c.MaxAge == 0 {
		c.MaxAge = time.Second
	}
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	for _, f := range []struct {
		field *fs.FS
		def   string
	}{{&c.Cgroups, "/sys/fs/cgroup"}, {&c.Proc, "/proc"}, {&c.Root, "/"}} {
		if *f.field == nil {
			*f.field = cgroupFS(f.def)
		}
	}
	if c.Statfs == nil {
		c.Statfs = statfs
	}
	return c
}

// Collector measures what a node and its pods use. Its methods may be called from any
// goroutine, and block for as long as the sources they ask. Their results are shared: they
// must not be changed. There is nothing to close.
type Collector struct {
	cfg   Config
	proc  proc
	disks disks
	rates rates

	// Three kinds of answers, each shared by those who ask for it.
	full, small shared[*statsapi.Summary]
	node        shared[*statsapi.NodeStats]
}

// New checks cfg and returns a Manager. It reads nothing. The error names all wrong
// fields.
func New(cfg Config) (*Collector, error) {
	cfg = cfg.withDefaults()
	var errs []error
	if cfg.NodeName == "" {
		errs = append(errs, errors.New("StatsConfig.NodeName is required"))
	}
	if cfg.Runtime == nil {
		errs = append(errs, errors.New("StatsConfig.Runtime is required"))
	}
	for name, d := range map[string]time.Duration{"MaxAge": cfg.MaxAge, "Timeout": cfg.Timeout} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("field StatsConfig.%s is %v; want a positive duration", name, d))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("stats: %w", err)
	}
	return &Collector{cfg: cfg, proc: proc{cfg.Proc}, disks: disks{statfs: cfg.Statfs}}, nil
}

// Summary is everything, not older than MaxAge. It holds what could be read even if
// there is an error, which joins what could not; it is nil only if ctx ended. It
// blocks for files, the runtime and volumes, or for another's question that is
// under way.
func (m *Collector) Summary(ctx context.Context) (*statsapi.Summary, error) {
	return m.full.get(ctx, time.Now().Add(-m.cfg.MaxAge), m.summary)
}

// Fresh is a Summary of which nothing was read before the call. Several who ask for
// one at the same time may share the next.
func (m *Collector) Fresh(ctx context.Context) (*statsapi.Summary, error) {
	return m.full.get(ctx, time.Now(), m.summary)
}

// CPUAndMemory is a Summary without file systems, networks and volumes. It asks the
// runtime for lists only, unless cgroups of containers cannot be found. Errors are
// as in Summary.
func (m *Collector) CPUAndMemory(ctx context.Context) (*statsapi.Summary, error) {
	return m.small.get(ctx, time.Now().Add(-m.cfg.MaxAge), m.smallSummary)
}

// Node is the node's part of a Summary, of which nothing was read before the call:
// the same in a few files and one question to the runtime, however many pods there
// are. Errors are as in Summary.
func (m *Collector) Node(ctx context.Context) (*statsapi.NodeStats, error) {
	return m.node.get(ctx, time.Now(), func(ctx context.Context) (*statsapi.NodeStats, error) {
		n, err := m.readNode(ctx, true)
		return &n, err
	})
}

package resources

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync/atomic"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/internal/kernel"
	"github.com/nodewright/nodewright/internal/scratch"
	"github.com/nodewright/nodewright/podspec"
)

// swapName is the name of the part.
const swapName = "swap"

// SwapConfig defines who has swap. The zero value of every field means the default named
// beside it.
type SwapConfig struct {
	// Allowed says that the machine may have swap; New refuses one that has
	// (failSwapOn, of which it is the contrary).
	Allowed bool
	// Limited gives containers of Burstable pods a share of it; nobody has any
	// (memorySwap.swapBehavior: LimitedSwap, else NoSwap). It takes cgroup v2.
	Limited bool

	// Files is the root of the machine's file system; this one's.
	Files fs.FS
	// NoSwapVolumes reports whether file systems in memory can be kept off swap;
	// scratch.NoSwap asks this kernel.
	NoSwapVolumes func() bool

	Log *zap.Logger // silent
}

// Swap is the part that decides what containers may have of
// the node's swap (KEP-2400).
//
//	p, err := resources.NewSwap(resources.SwapConfig{Allowed: true, Limited: true, Log: log})
//
// [NewSwap] refuses a machine with swap, by the names of its devices and files, unless
// SwapConfig.Allowed says that it may have some. Where there may be swap, containers
// have none of it (memory.swap.max is 0), or, if SwapConfig.Limited says so, those of
// Burstable pods a share: as large a part of the node's swap as the container
// requests of the node's memory. Package podspec has the formula.
//
// Its methods may be called from any goroutine.
//
// # Hooks
//
// Prepare finds out whether this machine's cgroups limit swap, until they are known
// to; where they do not, nothing is asked of the runtime, which would fail. Compile
// sets the node's swap for package podspec. Run reports once, by an event of the
// node, if volumes in memory may come to lie on a disk.
//
// # Ownership and faults
//
// NewSwap reads /proc/swaps and /proc/meminfo and nothing else. Swap that is switched on later is
// not refused, but limited as the rest. Where cgroups are those of v1, nobody has
// swap, whatever SwapConfig.Limited says, with a line in the log.
type Swap struct {
	cfg     SwapConfig
	machine *kernel.Reader
	host    part.Host
	on      bool
	size    int64 // bytes

	limits atomic.Bool // cgroups are known to limit swap
}

var (
	_ part.Joiner   = (*Swap)(nil)
	_ part.Runner   = (*Swap)(nil)
	_ part.Preparer = (*Swap)(nil)
	_ part.Compiler = (*Swap)(nil)
)

// ErrSwapOn is the error of New on a machine with swap that is to have none.
var ErrSwapOn = errors.New("this machine has swap on")

// NewSwap looks at the machine and returns a Part at rest. The error is an [ErrSwapOn] that
// names what is swapped to, if the machine has swap and Config does not allow it.
func NewSwap(cfg SwapConfig) (*Swap, error) {
	if cfg.NoSwapVolumes == nil {
		cfg.NoSwapVolumes = scratch.NoSwap
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	machine := kernel.At(cfg.Files)
	names, size, err := readSwap(machine)
	if err != nil {
		cfg.Log.Warn("failed to read the machine's swap; containers get none", zap.Error(err))
	}
	if len(names) > 0 && !cfg.Allowed {
		return nil, fmt.Errorf("failSwapOn: true: %w: %s; want no swap (swapoff -a), or failSwapOn: false", ErrSwapOn, strings.Join(names, ", "))
	}
	return &Swap{cfg: cfg, machine: machine, on: len(names) > 0, size: size}, nil
}

// Name implements part.Part.
func (*Swap) Name() string { return swapName }

// Join implements part.Joiner.
func (p *Swap) Join(h part.Host) error {
	if p.host != nil {
		return errors.New("swap: the part belongs to an agent already")
	}
	p.host = h
	return nil
}

// Reason of the event that Run records, and its text: those of the kubelet.
const (
	onDiskReason  = "PossibleMemoryBackedVolumesOnDisk"
	onDiskMessage = "The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) " +
		"might be swapped to disk and should no longer be considered secure."
)

// Run implements part.Runner: it says once what the machine's swap means.
func (p *Swap) Run(ctx context.Context) error {
	if v2, err := p.machine.V2(ctx); p.cfg.Limited && err == nil && !v2 {
		p.cfg.Log.Warn("cgroup v1 does not limit swap by container; none has any, as with memorySwap.swapBehavior: NoSwap")
	}
	if p.on && !p.cfg.NoSwapVolumes() {
		p.host.NodeEvent(v1.EventTypeWarning, onDiskReason, onDiskMessage)
	}
	return nil
}

// Prepare implements part.Preparer: the pod's cgroup is there, if nobody else's is.
func (p *Swap) Prepare(ctx context.Context, _ *v1.Pod, _ *observed.Pod) error {
	if !p.limits.Load() {
		// With an error it is asked again for the next pod.
		limited, _ := p.machine.LimitsSwap(ctx)
		p.limits.Store(limited)
	}
	return nil
}

// Compile implements part.Compiler.
func (p *Swap) Compile(_ *v1.Pod, in *podspec.Input) error {
	if p.limits.Load() {
		in.Node.Swap = &podspec.Swap{Limited: p.cfg.Limited, Capacity: p.size}
	}
	return nil
}

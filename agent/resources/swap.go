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

// SwapConfig configures the use of swap. The zero value of every field means the default named
// beside it.
type SwapConfig struct {
	// Allowed permits a machine with swap; otherwise NewSwap returns an error for it (the opposite
	// of failSwapOn).
	Allowed bool
	// Limited lets containers of Burstable pods use a share of the swap (memorySwap.swapBehavior:
	// LimitedSwap). If it is false, no container may use swap (NoSwap). It requires cgroup v2.
	Limited bool

	// Files is the root of the machine's file system. If it is nil, it is the root of this
	// process.
	Files fs.FS
	// NoSwapVolumes reports whether file systems in memory can be excluded from swap;
	// scratch.NoSwap checks this kernel.
	NoSwapVolumes func() bool

	Log *zap.Logger // if nil, nothing is logged
}

// Swap is the part that decides how much of the node's swap containers may use
// (KEP-2400).
//
//	p, err := resources.NewSwap(resources.SwapConfig{Allowed: true, Limited: true, Log: log})
//
// On a machine with swap, [NewSwap] returns an error that names the swap devices and
// files, unless SwapConfig.Allowed is set. On a machine that may have swap, containers
// cannot use it (memory.swap.max is 0), unless SwapConfig.Limited is set. Then
// containers of Burstable pods may use a share of the swap: the same fraction of the
// node's swap as the container requests of the node's memory. Package podspec has the
// formula.
//
// Its methods may be called from any goroutine.
//
// # Hooks
//
// Prepare checks whether this machine's cgroups can limit swap, until a check has shown
// that they can. If they cannot, no limit is requested from the runtime, which would
// fail. Compile sets the node's swap for package podspec. Run reports once, by an event
// of the node, if volumes in memory may be swapped to a disk.
//
// # Ownership and faults
//
// NewSwap reads /proc/swaps and /proc/meminfo and nothing else. Swap that is switched on later is
// not refused, but is limited in the same way. With cgroup v1, no container may use swap, even if
// SwapConfig.Limited is set; this is logged.
type Swap struct {
	cfg     SwapConfig
	machine *kernel.Reader
	host    part.Host
	on      bool
	size    int64 // bytes

	limits atomic.Bool // the cgroups are known to limit swap
}

var (
	_ part.Joiner   = (*Swap)(nil)
	_ part.Runner   = (*Swap)(nil)
	_ part.Preparer = (*Swap)(nil)
	_ part.Compiler = (*Swap)(nil)
)

// ErrSwapOn is the error of NewSwap on a machine with swap that is not allowed.
var ErrSwapOn = errors.New("this machine has swap on")

// NewSwap reads the machine's swap and returns a part. If the machine has swap that is not allowed,
// the error is an [ErrSwapOn] that names the devices.
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
func (p *Swap) Join(h part.Host) error { return part.SetHost(&p.host, h) }

// The reason and text of the event that Run records, as in the kubelet.
const (
	onDiskReason  = "PossibleMemoryBackedVolumesOnDisk"
	onDiskMessage = "The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) " +
		"might be swapped to disk and should no longer be considered secure."
)

// Run implements part.Runner: it records an event if volumes in memory may be swapped.
func (p *Swap) Run(ctx context.Context) error {
	if v2, err := p.machine.V2(ctx); p.cfg.Limited && err == nil && !v2 {
		p.cfg.Log.Warn("cgroup v1 cannot limit the swap of a container; containers get no swap, as with memorySwap.swapBehavior: NoSwap")
	}
	if p.on && !p.cfg.NoSwapVolumes() {
		p.host.NodeEvent(v1.EventTypeWarning, onDiskReason, onDiskMessage)
	}
	return nil
}

// Prepare implements part.Preparer. It checks whether the machine's cgroups can limit swap. It
// does so here since the pod's cgroup exists by then, and it may be the only cgroup on the
// machine with the files to check.
func (p *Swap) Prepare(ctx context.Context, _ *v1.Pod, _ *observed.Pod) error {
	if !p.limits.Load() {
		// After an error, the next pod's Prepare checks again.
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

package resources

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/internal/wake"
)

// PlacementRuntime has the methods of a container runtime that Placement calls; *cri.Client
// implements it. For a missing container, calls must return the gRPC code NotFound.
type PlacementRuntime interface {
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error)
	UpdateContainerResources(ctx context.Context, id string, to *runtimeapi.ContainerResources) error
}

// PlacementConfig configures a [Placement]. The zero value of every field but Runtime means the
// default named beside it.
type PlacementConfig struct {
	// Fit configures the machine and the placement policies; default: nothing is placed. CPUOptions
	// must not have ResizeExclusive.
	Fit fit.PlacementConfig
	// Runtime is the container runtime. It is required unless the part is idle; see
	// [Placement.Idle].
	Runtime PlacementRuntime
	// Store has a checkpoint for each pod with allocated resources, under its UID. If Store is
	// nil, a restart relies on the state of the runtime. If Store has a method Dir() string, like
	// a *checkpoint.Lazy, a missing directory means that no earlier process has placed anything.
	Store part.Store
	// KubeletDir is the root directory of a kubelet that ran this node before, or may run it
	// later. Its cpu_manager_state and memory_manager_state are read if the kubelet wrote them
	// after this agent. Existing files are kept up to date. A missing file is created if its
	// policy places something, since node tools read it. If KubeletDir is "", there is no such
	// kubelet.
	KubeletDir string

	Log     *zap.Logger           // if nil, nothing is logged
	Metrics prometheus.Registerer // if nil, metrics are not exported
}

// Placement is the part that gives containers exclusive CPUs and memory, and keeps all
// other containers off these CPUs.
//
// Package fit decides, and this part carries the decision out. First Reserve makes the
// decision. Then Prepare writes its checkpoint, and moves other containers off the
// CPUs. Only then the owner starts. A container is created on the CPUs that it has at
// that moment (BeforeCreate): some shared CPUs may have been given to another container
// after its configuration was compiled.
//
//	p, err := resources.NewPlacement(resources.PlacementConfig{
//		Fit:     fit.Config{Machine: machine, CPUPolicy: fit.CPUStatic, ...},
//		Runtime: runtime, // a *cri.Client
//		Store:   part.OpenStore(dir, log),
//	})
//
// Reservations of earlier parts that are [part.Aligned] take part in the decision on
// NUMA nodes, so in Config.Parts the part must come after the parts for devices.
// [Placement.CPUs], [Placement.Memory] and [Placement.OwnCPUs] return the resources of
// containers.
//
// Its methods may be called from any goroutine.
//
// # Restarts
//
// Restore reads the allocations from the checkpoints. For a pod without a checkpoint,
// the running containers are authoritative. A running container keeps its CPUs, even if
// a checkpoint or the policy says something else, and containers of pods that no source
// has delivered yet are not changed. Until Restore has finished, no pod is admitted:
// pods wait, with the reason PlacementNotRestored.
//
// If a kubelet wrote its cpu_manager_state or memory_manager_state after this agent's
// last write, these files are newer than the checkpoints: then containers that are not
// running have the allocations in these files. Run keeps the files up to date.
//
// # Ownership
//
// NewPlacement has no side effects, and the part has no goroutine except Run's. Decisions are in
// memory, guarded by a lock that is never held during a call of the store, the runtime or another
// part. Checkpoints are written in Prepare, and removed in Stopped and Sweep.
//
// # Faults
//
// If the runtime fails to change a cpuset, each later call of Prepare, Stopped or Sweep
// tries again; until then, the owner of the CPUs does not start. If a checkpoint cannot
// be written, its pod does not start. A store that hangs delays Restore and the pods
// that need a checkpoint.
type Placement struct {
	cfg  PlacementConfig
	idle bool
	met  *placementMetrics
	host part.Host // set by Join

	// creating is a semaphore. Each creation of a container acquires 1 of it, and a change of all
	// cpusets acquires all of it, so that no container is created in between.
	creating *semaphore.Weighted

	mu       sync.Mutex
	restored bool
	early    earlyPlacement // while not restored
	node     fit.Placement  // its State has the decisions
	version  uint64         // incremented with each change of node.State
	pods     map[types.UID]*placed
	live     map[string]*container // by ID
	files    map[types.UID]*file   // of pods that have a checkpoint, or will have one
	stale    map[types.UID]bool    // pods with outdated checkpoints
	unread   map[types.UID]bool    // checkpoints that could not be read at the start
	unlisted bool                  // the checkpoints could not be listed
	kubelet  kubelet
}

// The hooks of the part.
var (
	_ part.Joiner           = (*Placement)(nil)
	_ part.Restorer         = (*Placement)(nil)
	_ part.Runner           = (*Placement)(nil)
	_ part.Reserver         = (*Placement)(nil)
	_ part.Forecaster       = (*Placement)(nil)
	_ part.Preparer         = (*Placement)(nil)
	_ part.Compiler         = (*Placement)(nil)
	_ part.Creator          = (*Placement)(nil)
	_ part.ContainerWatcher = (*Placement)(nil)
	_ part.Stopper          = (*Placement)(nil)
	_ part.Sweeper          = (*Placement)(nil)
	_ part.ResizeChecker    = (*Placement)(nil)
)

// NewPlacement checks cfg and returns a part. It reports all errors at once.
func NewPlacement(cfg PlacementConfig) (*Placement, error) {
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	idle := cfg.Fit.Idle() && (len(cfg.Fit.Machine.CPUs) == 0 || !leftovers(cfg.Store))
	var errs []error
	node, err := fit.NewPlacement(cfg.Fit)
	errs = append(errs, err)
	if cfg.Fit.CPUOptions.ResizeExclusive {
		errs = append(errs, errors.New("CPUOptions.ResizeExclusive is true; want false: the agent does not move CPUs of running containers"))
	}
	if cfg.Runtime == nil && !idle {
		errs = append(errs, errors.New("PlacementConfig.Runtime is required"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("placement: %w", err)
	}
	if idle {
		cfg.Metrics = nil // an idle part has no metrics
	}
	met, err := newPlacementMetrics(cfg, node)
	if err != nil {
		return nil, fmt.Errorf("placement: %w", err)
	}
	return &Placement{
		cfg: cfg, idle: idle, met: met, creating: semaphore.NewWeighted(allCreations),
		restored: idle, early: earlyPlacement{stopped: map[types.UID]bool{}}, node: node,
		pods: map[types.UID]*placed{}, live: map[string]*container{},
		files: map[types.UID]*file{}, stale: map[types.UID]bool{},
		kubelet: kubelet{outdated: wake.New()},
	}, nil
}

// leftovers reports whether an earlier process may have bound containers to CPUs. Such containers
// have to be released from their CPUs even if nothing is placed any more.
func leftovers(s part.Store) bool {
	if s == nil {
		return false
	}
	d, ok := s.(part.DirStore)
	if !ok {
		return true
	}
	_, err := os.Stat(d.Dir())
	return err == nil
}

// Name implements part.Part.
func (*Placement) Name() string { return "placement" }

// Idle reports whether nothing is placed now and nothing was placed by an earlier process. An idle
// part stores nothing and does not call the runtime; it only aligns the reservations of other
// parts.
func (p *Placement) Idle() bool { return p.idle }

// Join implements part.Joiner.
func (p *Placement) Join(h part.Host) error { return part.SetHost(&p.host, h) }

// FitsWithout implements part.Forecaster. It considers only CPUs and memory.
func (p *Placement) FitsWithout(pod *v1.Pod, gone []types.UID) bool {
	node, _, restored := p.now()
	if p.idle || !restored {
		return true // nothing is known that would prevent it
	}
	for _, uid := range gone {
		node.State = node.Without(string(uid))
	}
	_, err := fit.Fit(node, pod)
	return err == nil
}

// now returns the node with all decisions so far, and the version of its state. restored reports
// whether Restore has finished.
func (p *Placement) now() (node fit.Placement, version uint64, restored bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.node, p.version, p.restored
}

// logged logs an error that is not returned.
func (p *Placement) logged(what string, err error, fields ...zap.Field) {
	if err != nil && !errors.Is(err, context.Canceled) {
		p.cfg.Log.Warn(what, append(fields, zap.Error(err))...)
	}
}

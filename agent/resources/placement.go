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
)

// PlacementRuntime is the used part of a container runtime; *cri.Client implements it. For a
// missing container, calls must return the gRPC code NotFound.
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
	// Runtime is required unless the part is idle; see [Placement.Idle].
	Runtime PlacementRuntime
	// Store has a checkpoint for each pod with allocated resources, under its UID. Without a store,
	// a restart relies on the state of the runtime. If it has a method Dir() string, like a
	// *checkpoint.Lazy, a missing directory means that no earlier process has placed anything.
	Store part.Store
	// KubeletDir is the root directory of a kubelet that had this node or may get it. Its
	// cpu_manager_state and memory_manager_state are read if the kubelet wrote them last. Existing
	// files are kept up to date. The file of a policy that places something is created, since node
	// tools read it. Default: none.
	KubeletDir string

	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported
}

// Placement gives containers CPUs and memory of their own, and keeps
// all other containers off them. It is a [part.Part] of a node agent.
//
// Package fit decides; this package carries the decision out, in this order: the
// decision itself (Reserve), its checkpoint and the departure of other containers
// from the CPUs (Prepare), the start of the owner. A container is created on the
// CPUs that are its own at that moment (BeforeCreate), since others may have been
// given some of the shared ones after its configuration was compiled.
//
//	p, err := resources.NewPlacement(resources.PlacementConfig{
//		Fit:     fit.Config{Machine: machine, CPUPolicy: fit.CPUStatic, ...},
//		Runtime: runtime, // a *cri.Client
//		Store:   part.OpenStore(dir, log),
//	})
//
// Reservations of earlier parts that are [part.Aligned] take part in the decision
// on NUMA nodes, so the part belongs after those of devices. What containers have
// is shown by [Placement.CPUs], [Placement.Memory] and [Placement.OwnCPUs].
//
// Its methods may be called from any goroutine.
//
// # Restarts
//
// Restore learns who has what from the checkpoints; where these do not say, the
// containers that run are authoritative. A container that runs keeps its CPUs
// whatever the checkpoints and the policy say, and none is touched that no source
// has named yet. Until Restore is done no pod is admitted: pods wait, with the
// reason PlacementNotRestored.
//
// A kubelet's cpu_manager_state and memory_manager_state are newer than the checkpoints
// if the kubelet wrote them last. Containers that do not run have what they say; Run
// keeps them up to date.
//
// # Ownership
//
// NewPlacement has no side effects, and the part has no goroutine but that of Run. Decisions are in
// memory, under a lock that is never held for the store, the runtime or another
// part. Checkpoints are written in Prepare, and removed in Stopped and Sweep.
//
// # Faults
//
// A cpuset that the runtime does not change is tried again by each later call of
// Prepare, Stopped or Sweep; the owner of CPUs does not start while others are on
// them. A checkpoint that cannot be written keeps its pod from starting. A store
// that hangs holds up the pods that need a checkpoint, and Restore.
type Placement struct {
	cfg  PlacementConfig
	idle bool
	met  *placementMetrics
	host part.Host // set by Join

	// creating is acquired once by each creation of a container, and completely for a change of all
	// cpusets, so that no container is missed in between.
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
		kubelet: kubelet{told: make(chan struct{}, 1)},
	}, nil
}

// leftovers reports whether an earlier process may have bound containers to CPUs. They have to be
// released even if nothing is placed any more.
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
func (p *Placement) Join(h part.Host) error {
	if p.host != nil {
		return errors.New("placement: the part belongs to an agent already")
	}
	p.host = h
	return nil
}

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

// now returns the node with all decisions, and the version of its state.
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

package placement

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

// Runtime is the part of a container runtime that this package uses. A
// *cri.Client has it. A container that is not there must fail with the gRPC code
// NotFound.
type Runtime interface {
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error)
	UpdateContainerResources(ctx context.Context, id string, to *runtimeapi.ContainerResources) error
}

// Config holds what a Part needs. The zero value of every field but Runtime means
// the default named beside it.
type Config struct {
	// Fit says what is placed, and on which machine. Nothing; CPUOptions must
	// not have ResizeExclusive.
	Fit fit.PlacementConfig
	// Runtime is required unless the part is idle; see [Part.Idle].
	Runtime Runtime
	// Store keeps a checkpoint for each pod that has something, under its UID.
	// Without one a restart relies on what the runtime shows. If it has a
	// method Dir() string, as a *checkpoint.Lazy has, a directory that is not
	// there means that no earlier process has placed anything.
	Store part.Store
	// KubeletDir is the root directory of a kubelet that this node had or may have
	// again: its cpu_manager_state is read, and kept up to date where it is there.
	// None.
	KubeletDir string

	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported
}

// Part places the containers of a node's pods. Its methods may be called from any
// goroutine.
type Part struct {
	cfg  Config
	idle bool
	met  *metrics
	host part.Host // set by Join

	// creating is acquired once by each creation of a container, and as a whole
	// to change the cpusets of all: so no container is missed between the two.
	creating *semaphore.Weighted

	mu       sync.Mutex
	restored bool
	early    early         // while not restored
	node     fit.Placement // its State is what was decided
	version  uint64        // grows with each change of node.State
	pods     map[types.UID]*placed
	live     map[string]*container // by ID
	files    map[types.UID]*file   // of pods that have a checkpoint, or are about to
	stale    map[types.UID]bool    // checkpoints that say what is no longer so
	unread   map[types.UID]bool    // checkpoints that a disk did not give at the start
	unlisted bool                  // the disk did not even list them
	kubelet  kubelet
}

// Which hooks the part has.
var (
	_ part.Joiner           = (*Part)(nil)
	_ part.Restorer         = (*Part)(nil)
	_ part.Runner           = (*Part)(nil)
	_ part.Reserver         = (*Part)(nil)
	_ part.Forecaster       = (*Part)(nil)
	_ part.Preparer         = (*Part)(nil)
	_ part.Compiler         = (*Part)(nil)
	_ part.Creator          = (*Part)(nil)
	_ part.ContainerWatcher = (*Part)(nil)
	_ part.Stopper          = (*Part)(nil)
	_ part.Sweeper          = (*Part)(nil)
	_ part.ResizeChecker    = (*Part)(nil)
)

// New checks cfg and returns a Part at rest. It reports all mistakes at once.
func New(cfg Config) (*Part, error) {
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
		errs = append(errs, errors.New("Config.Runtime is required"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("placement: %w", err)
	}
	if idle {
		cfg.Metrics = nil // there would be nothing in them
	}
	met, err := newMetrics(cfg, node)
	if err != nil {
		return nil, fmt.Errorf("placement: %w", err)
	}
	return &Part{
		cfg: cfg, idle: idle, met: met, creating: semaphore.NewWeighted(allCreations),
		restored: idle, early: early{stopped: map[types.UID]bool{}}, node: node,
		pods: map[types.UID]*placed{}, live: map[string]*container{},
		files: map[types.UID]*file{}, stale: map[types.UID]bool{},
		kubelet: kubelet{told: make(chan struct{}, 1)},
	}, nil
}

// leftovers reports whether an earlier process may have bound containers to CPUs:
// even if nothing is placed any more, they have to be set free.
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
func (*Part) Name() string { return "placement" }

// Idle reports whether nothing is placed, and nothing was by an earlier process
// of the agent. Such a part keeps nothing and asks the runtime for nothing; all
// it does is to align the reservations of other parts with each other.
func (p *Part) Idle() bool { return p.idle }

// Join implements part.Joiner.
func (p *Part) Join(h part.Host) error {
	if p.host != nil {
		return errors.New("placement: the part belongs to an agent already")
	}
	p.host = h
	return nil
}

// FitsWithout implements part.Forecaster. CPUs and memory alone count.
func (p *Part) FitsWithout(pod *v1.Pod, gone []types.UID) bool {
	node, _, restored := p.now()
	if p.idle || !restored {
		return true // nothing is known against it
	}
	for _, uid := range gone {
		node.State = node.Without(string(uid))
	}
	_, err := fit.Fit(node, pod)
	return err == nil
}

// now is the node as decided, and the version of its state.
func (p *Part) now() (node fit.Placement, version uint64, restored bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.node, p.version, p.restored
}

// logged reports an error that nobody else would hear of.
func (p *Part) logged(what string, err error, fields ...zap.Field) {
	if err != nil && !errors.Is(err, context.Canceled) {
		p.cfg.Log.Warn(what, append(fields, zap.Error(err))...)
	}
}

package resize

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
)

// Config holds what a Part needs.
type Config struct {
	// Store keeps the allocation records over a restart of the agent. Required:
	// without them a restart would undo resizes.
	Store part.Store
	// KubeletDir is the root directory of a kubelet that this node had or may have
	// again: its allocated_pods_state is read, and kept up to date where it is there.
	// "": none.
	KubeletDir string
	// Log gets records that cannot be read, written or removed where no error
	// says so. nil: silent.
	Log *zap.Logger
	// Metrics gets the kubelet's metrics of resizes. nil: none.
	Metrics prometheus.Registerer
}

// Part allocates other resources to pods that run.
type Part struct {
	cfg  Config
	met  *metrics
	host host // set by Join

	restored chan struct{} // closed when the records have been read
	calls    sync.WaitGroup

	// The loop takes mu: it is held for no call of the store or the host.
	mu    sync.Mutex
	ended bool
	pods  map[types.UID]*state
	read  map[types.UID]*allocation // records of pods that have not come yet
	left  map[types.UID]*allocation // what a kubelet left to such pods
	ops   map[types.UID]*op         // on records

	// shared means that there is a kubelet's file to be kept up to date, and told has
	// a token while that may not say what was allocated.
	shared bool
	told   chan struct{}
}

// host is what a Part needs of its agent.
type host interface {
	part.Host
	part.Resizes
}

var (
	_ part.Joiner      = (*Part)(nil)
	_ part.Runner      = (*Part)(nil)
	_ part.Restorer    = (*Part)(nil)
	_ part.Allocator   = (*Part)(nil)
	_ part.Preparer    = (*Part)(nil)
	_ part.SyncWatcher = (*Part)(nil)
	_ part.Stopper     = (*Part)(nil)
	_ part.Housekeeper = (*Part)(nil)
	_ part.Sweeper     = (*Part)(nil)
	_ part.Explainer   = (*Part)(nil)
)

// New checks cfg and returns a Part at rest.
func New(cfg Config) (*Part, error) {
	var errs []error
	if cfg.Store == nil {
		errs = append(errs, errors.New("Config.Store is required"))
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	met, err := newMetrics(cfg.Metrics)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("resize: %w", err)
	}
	return &Part{
		cfg: cfg, met: met, restored: make(chan struct{}),
		pods: map[types.UID]*state{}, read: map[types.UID]*allocation{}, left: map[types.UID]*allocation{}, ops: map[types.UID]*op{},
		told: make(chan struct{}, 1),
	}, nil
}

// Name implements part.Part.
func (*Part) Name() string { return "resize" }

// Join implements part.Joiner. The host has to be a part.Resizes.
func (p *Part) Join(h part.Host) error {
	if p.host != nil {
		return errors.New("resize: the part belongs to an agent already")
	}
	joined, ok := h.(host)
	if !ok {
		return fmt.Errorf("resize: the host, a %T, is no part.Resizes", h)
	}
	p.host = joined
	return nil
}

// Run implements part.Runner: it returns when ctx has ended and no record is
// being written. A disk that hangs holds it up.
func (p *Part) Run(ctx context.Context) error {
	p.keepTold(ctx)
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.calls.Wait()
	return nil
}

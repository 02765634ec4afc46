package resources

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

// ResizeConfig configures a [Resize].
type ResizeConfig struct {
	// Store stores the allocation records over a restart of the agent. Required: otherwise a
	// restart would undo resizes.
	Store part.Store
	// KubeletDir is the root directory of a kubelet that had this node or may get it. Its
	// allocated_pods_state is read, and kept up to date if it exists. "": none.
	KubeletDir string
	// Log gets records that cannot be read, written or removed, if the error is not returned. Nil:
	// nothing is logged.
	Log *zap.Logger
	// Metrics is the registry for the kubelet's metrics of resizes. Nil: none.
	Metrics prometheus.Registerer
}

// Resize changes the resources of pods that run (KEP-1287): it decides
// which of what they ask for they are allocated, and when.
//
//	p, err := resources.NewResize(resources.ResizeConfig{Store: part.OpenStore(dir, log)})
//
// A pod that asks for other resources than it has been allocated gets them at
// once if the node has room, waits if it has not now (Deferred), or until it asks
// for something else if it never has (Infeasible). Waiting pods are decided on
// again whenever something was given back: first those that take no more than
// they have, then by priority, then Guaranteed pods, then in the order in which
// they began to wait.
//
// # Hooks
//
// part.Allocator answers which version of a pod runs, part.Housekeeper decides
// again, part.Preparer writes a pod's allocation record before its containers are
// changed, part.SyncWatcher and part.Stopper follow a resize to its end,
// part.Restorer and part.Sweeper keep the records, part.Explainer says why a pod
// waits. The host has to have part.Resizes as well.
//
// # Allocation records
//
// The store has a record, under its UID, for each pod that was resized or waited
// for it. Of other pods what their containers were made with is known from the
// containers. A record is written after the decision, and before a container is
// changed: an agent that is killed between the two decides anew.
//
// A kubelet's allocated_pods_state is newer than the records if the kubelet wrote it
// last; [Resize.Run] keeps it up to date.
//
// # Ownership
//
// Decisions are made in memory on the agent's loop. Calls of the store are made
// by Restore, by Sweep, and by goroutines that [Resize.Run] waits for, at most one
// for each pod, and under no lock.
//
// # Faults
//
// Until the records have been read nothing is decided, and pods have what their
// containers were made with; one that asks for something else is not synced,
// since its containers may have been resized already. Reading goes on until the disk
// answers. A single record that is damaged or cannot be read counts as missing. One that cannot be written fails the sync of a pod that
// is to be resized, with the reason ResizeError and a condition; its containers
// keep what they have. A pod that only waits is not held up by its record.
type Resize struct {
	cfg  ResizeConfig
	met  *metrics
	host host // set by Join

	restored chan struct{} // closed when the records have been read
	calls    sync.WaitGroup

	// The loop locks mu, so it is not held during calls of the store or the host.
	mu    sync.Mutex
	ended bool
	pods  map[types.UID]*state
	read  map[types.UID]*allocation // records of pods that the sources have not delivered yet
	left  map[types.UID]*allocation // a kubelet's allocations of such pods
	ops   map[types.UID]*resizeOp   // on records

	// shared means that a kubelet's file has to be kept up to date. told has a value while the file
	// may be outdated.
	shared bool
	told   chan struct{}
}

// host is the used part of the agent.
type host interface {
	part.Host
	part.Resizes
}

var (
	_ part.Joiner      = (*Resize)(nil)
	_ part.Runner      = (*Resize)(nil)
	_ part.Restorer    = (*Resize)(nil)
	_ part.Allocator   = (*Resize)(nil)
	_ part.Preparer    = (*Resize)(nil)
	_ part.SyncWatcher = (*Resize)(nil)
	_ part.Stopper     = (*Resize)(nil)
	_ part.Housekeeper = (*Resize)(nil)
	_ part.Sweeper     = (*Resize)(nil)
	_ part.Explainer   = (*Resize)(nil)
)

// NewResize checks cfg and returns a part.
func NewResize(cfg ResizeConfig) (*Resize, error) {
	var errs []error
	if cfg.Store == nil {
		errs = append(errs, errors.New("ResizeConfig.Store is required"))
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	met, err := newMetrics(cfg.Metrics)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("resize: %w", err)
	}
	return &Resize{
		cfg: cfg, met: met, restored: make(chan struct{}),
		pods: map[types.UID]*state{}, read: map[types.UID]*allocation{}, left: map[types.UID]*allocation{}, ops: map[types.UID]*resizeOp{},
		told: make(chan struct{}, 1),
	}, nil
}

// Name implements part.Part.
func (*Resize) Name() string { return "resize" }

// Join implements part.Joiner. The host has to be a part.Resizes.
func (p *Resize) Join(h part.Host) error {
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

// Run implements part.Runner: it returns when ctx has ended and no record is being written, which
// may wait for a disk.
func (p *Resize) Run(ctx context.Context) error {
	p.keepTold(ctx)
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.calls.Wait()
	return nil
}

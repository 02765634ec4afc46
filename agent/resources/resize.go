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
	"github.com/nodewright/nodewright/internal/wake"
)

// ResizeConfig configures a [Resize].
type ResizeConfig struct {
	// Store stores the allocation records over a restart of the agent. Required: otherwise a
	// restart would undo resizes.
	Store part.Store
	// KubeletDir is the root directory of a kubelet that ran this node before, or may run it
	// later. Its allocated_pods_state is read, and kept up to date if it exists. If KubeletDir is
	// "", there is no such kubelet.
	KubeletDir string
	// Log gets errors about records that cannot be read, written or removed, unless the error is
	// returned. If Log is nil, nothing is logged.
	Log *zap.Logger
	// Metrics is the registry for the kubelet's metrics of resizes. If it is nil, they are not
	// exported.
	Metrics prometheus.Registerer
}

// Resize is the part that changes the resources of running pods (KEP-1287): it decides
// which requested resources are allocated, and when.
//
//	p, err := resources.NewResize(resources.ResizeConfig{Store: part.OpenStore(dir, log)})
//
// If a pod requests other resources than it has been allocated, it gets them at once if
// the node has enough. If the node does not have enough now, the pod waits (Deferred).
// If the node can never have enough, the pod keeps its allocation until its request
// changes (Infeasible). Whenever resources were released, the part decides again on
// waiting pods, in this order: first pods that request no more than they have, then by
// priority, then Guaranteed pods, then by the time at which they began to wait.
//
// # Hooks
//
// part.Allocator returns the version of a pod that runs. part.Housekeeper decides again
// on waiting pods. part.Preparer writes a pod's allocation record before its containers
// are changed. part.SyncWatcher and part.Stopper follow a resize to its end.
// part.Restorer and part.Sweeper read and remove records. part.Explainer says why a pod
// waits. The Host has to implement part.Resizes too.
//
// # Allocation records
//
// The store has a record, under its UID, for each pod that was resized or that waits
// for a resize. For other pods, the containers have the resources with which they were
// created. A record is written after the decision and before a container is changed. If
// the agent is killed after the decision, but before the record is written, the next
// agent decides again.
//
// If a kubelet wrote its allocated_pods_state after this agent's last write, this file
// is newer than the records. [Resize.Run] keeps it up to date.
//
// # Ownership
//
// Decisions are made in memory on the agent's loop. The store is called by Restore, by
// Sweep, and by goroutines for which [Resize.Run] waits, at most one for each pod. No
// lock is held during these calls.
//
// # Faults
//
// Until the records have been read, nothing is decided, and pods have the resources with which
// their containers were created. A pod that requests other resources is not synced before that,
// since its containers may have been resized already. Reading continues until the disk answers. A
// record that is damaged counts as missing. If the record of a pod that is to be resized cannot be
// written, the pod's sync fails, with the reason ResizeError and a condition, and its containers
// keep their resources. A pod that only waits for a resize does not wait for its record.
type Resize struct {
	cfg  ResizeConfig
	met  *metrics
	host host // set by Join

	restored chan struct{} // closed when the records have been read
	calls    sync.WaitGroup

	// The loop locks mu, so mu is not held during calls of the store or the Host.
	mu    sync.Mutex
	ended bool
	pods  map[types.UID]*state
	read  map[types.UID]*allocation // records of pods that the sources have not delivered yet
	left  map[types.UID]*allocation // a kubelet's allocations of such pods
	ops   map[types.UID]*resizeOp   // running operations on records

	// shared means that a kubelet's file exists and has to be kept up to date.
	// kubeletOutdated is set while the file may be outdated.
	shared          bool
	kubeletOutdated wake.Signal
}

// host has the methods of the agent that Resize calls.
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
		kubeletOutdated: wake.New(),
	}, nil
}

// Name implements part.Part.
func (*Resize) Name() string { return "resize" }

// Join implements part.Joiner. The host has to be a part.Resizes.
func (p *Resize) Join(h part.Host) error {
	joined, ok := h.(host)
	if !ok {
		return fmt.Errorf("the agent (%T) does not implement part.Resizes", h)
	}
	return part.SetHost(&p.host, joined)
}

// Run implements part.Runner: it returns when ctx has ended and no record is being written, which
// may wait for a disk.
func (p *Resize) Run(ctx context.Context) error {
	p.keepKubeletFile(ctx)
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.calls.Wait()
	return nil
}

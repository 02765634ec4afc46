package lifecycle

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/node/shutdown"
	"github.com/nodewright/nodewright/podlife"
)

// shutdownName is the name of the part.
const shutdownName = "shutdown"

// ShutdownConfig configures the termination of pods when the machine shuts down. Machine is
// required, unless there are neither times nor groups. Every other field has a default for its
// zero value.
type ShutdownConfig struct {
	// Requested is the time that all pods together get to end. Critical is the part of it for
	// critical pods. 0: shutdowns are not handled.
	Requested, Critical time.Duration
	// Groups are groups of pods with their own times. If there are any, they replace Requested
	// and Critical.
	Groups []shutdown.Group
	// Machine reports the shutdown of the machine: use the result of [logind.New] or of
	// [shutdown.OnSignal]. Its Release must not block.
	Machine shutdown.Machine
	// Changed is called when a shutdown begins and when it is cancelled. Calls do not overlap,
	// and are not made on the loop. Changed may be nil.
	Changed func(down bool)
	// BootID is the ID of the machine's current boot. The default is the kernel's boot ID.
	BootID string

	// Store stores the state of a shutdown over a restart of the agent. If it is nil, the state
	// is not stored.
	Store   part.Store
	Log     *zap.Logger           // if nil, nothing is logged
	Metrics prometheus.Registerer // if nil, metrics are not exported
}

// Shutdown is the part that ends pods in order when the machine shuts down.
//
//	p, err := lifecycle.NewShutdown(lifecycle.ShutdownConfig{
//		Requested: 30 * time.Second, Critical: 10 * time.Second, Machine: logind.New(logind.Config{}),
//		Store: part.OpenStore(filepath.Join(root, "shutdown"), log), Log: log, Metrics: registry,
//	})
//	parts := []part.Part{p, ...}
//	err = p.ShuttingDown() // makes the node not ready
//
// Package github.com/nodewright/nodewright/node/shutdown has the order, the groups and
// the machine; this part connects it to an agent.
//
// Its methods may be called from any goroutine, once an agent has it.
//
// # Hooks
//
// Admit rejects every pod during a shutdown. Over makes static pods start again that
// ended or were rejected because of a shutdown, if the shutdown was cancelled or the
// machine has booted again; they have no controller that would replace them. Restore
// reads the state that the previous agent has stored. Run watches the machine.
//
// # Ownership
//
// [NewShutdown] has no side effects. All goroutines end with [Shutdown.Run]. The store is read
// and written only off the loop; hooks on the loop read memory.
//
// # Faults
//
// The machine is watched even if the disk or the runtime hangs: Run reads the store
// itself, and waits at most two seconds for it. If the store answers later, this is
// logged, and the state is not used. If the agent has given up waiting for Restore,
// pods are admitted although the state of the previous agent is not known.
// Machine.Release must not block, since hooks on the loop wait for it.
type Shutdown struct {
	cfg   ShutdownConfig
	block *shutdown.Manager
	host  part.Host
	past  *past
	// adopted makes the first shutdown wait until running pods have been adopted.
	adopted sync.Once
}

var (
	_ part.Joiner   = (*Shutdown)(nil)
	_ part.Runner   = (*Shutdown)(nil)
	_ part.Restorer = (*Shutdown)(nil)
	_ part.Admitter = (*Shutdown)(nil)
	_ part.Reviver  = (*Shutdown)(nil)
)

// NewShutdown checks cfg and returns a part.
func NewShutdown(cfg ShutdownConfig) (*Shutdown, error) {
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	if cfg.Changed == nil {
		cfg.Changed = func(bool) {}
	}
	p := &Shutdown{cfg: cfg, past: newPast(cfg.Store)}
	c := shutdown.Config{
		Requested: cfg.Requested, Critical: cfg.Critical, Groups: cfg.Groups,
		Machine: cfg.Machine, Pods: pods{p}, Killer: pods{p}, Volumes: pods{p},
		Event:   func(reason, message string) { p.host.NodeEvent(v1.EventTypeNormal, reason, message) },
		Changed: p.changed, BootID: cfg.BootID, Log: cfg.Log, Metrics: cfg.Metrics,
	}
	if cfg.Store != nil {
		c.State = p.past
	}
	var err error
	p.block, err = shutdown.New(c)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// changed handles a shutdown or its cancellation: pods that ended for a cancelled shutdown start
// again.
func (p *Shutdown) changed(down bool) {
	p.host.Housekeep()
	p.cfg.Changed(down)
}

// Name implements part.Part.
func (p *Shutdown) Name() string { return shutdownName }

// Join implements part.Joiner.
func (p *Shutdown) Join(h part.Host) error { return part.SetHost(&p.host, h) }

// ShuttingDown returns [shutdown.ErrShuttingDown] during a shutdown, which makes the node not
// ready. Otherwise it returns nil. It does not block.
func (p *Shutdown) ShuttingDown() error { return p.block.Err() }

// Admit implements part.Admitter.
func (p *Shutdown) Admit(*v1.Pod, []*v1.Pod) *part.Rejection {
	if reason, message, ok := p.block.Admit(); !ok {
		return &part.Rejection{Reason: reason, Message: message, Final: true}
	}
	return nil
}

// Over implements part.Reviver.
func (p *Shutdown) Over(pod *v1.Pod, cause podlife.Cause) bool {
	ended := cause.Kind == podlife.Shutdown || cause.Kind == podlife.Rejected && cause.Reason == shutdown.ReasonNotAdmitted
	return ended && cause.Returns(pod) && p.ShuttingDown() == nil
}

// Begins implements part.Reviver.
func (p *Shutdown) Begins(pod *v1.Pod, _ podlife.Cause) {
	p.cfg.Log.Info("pod begins again: the machine stays up", zap.String("pod", pod.Namespace+"/"+pod.Name))
}

// Restore implements part.Restorer: it returns when Run has read the state of the previous agent,
// or has given up.
func (p *Shutdown) Restore(ctx context.Context) error {
	if err := p.past.wait(ctx); err != nil {
		return fmt.Errorf("restore the state of a shutdown: %w", err)
	}
	return nil
}

// Run implements part.Runner: it reads the stored state of an earlier shutdown, and then watches
// the machine for a shutdown. It waits at most readWithin for the store, since the machine may shut
// down at any time.
func (p *Shutdown) Run(ctx context.Context) error {
	var reading sync.WaitGroup
	defer reading.Wait()
	reading.Go(func() { p.past.restore(p.block.Restore) })
	short, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	if p.past.wait(short) != nil && short.Err() != nil { // Restore returns the error
		p.past.giveUp()
		_ = p.past.wait(ctx) // the state that was just read is being restored
	}
	return p.block.Run(ctx)
}

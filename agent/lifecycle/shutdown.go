package lifecycle

import (
	"context"
	"errors"
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
// required, unless there are neither times nor groups; the zero value of every other field means
// the default named beside it.
type ShutdownConfig struct {
	// Requested is the time of all pods together, and Critical the part of it for pods of the
	// system; 0: shutdowns are not handled.
	Requested, Critical time.Duration
	// Groups replace Requested and Critical; none.
	Groups []shutdown.Group
	// PassOn gives the unused time of a group to the next one; false.
	PassOn bool
	// Machine reports the machine's shutdown: the result of [logind.New] or of [shutdown.OnSignal].
	// Its Release must not block.
	Machine shutdown.Machine
	// Changed is called when a shutdown begins and when it is cancelled. Calls do not overlap, and
	// are not made on the loop. Nil: no call.
	Changed func(down bool)
	// BootID is the ID of the machine's current boot; the kernel's.
	BootID string

	// Store stores the state of a shutdown over a restart of the agent; nil: it is not stored.
	Store   part.Store
	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported
}

// Shutdown is the part that ends pods in order when the
// machine goes down.
//
//	p, err := lifecycle.NewShutdown(lifecycle.ShutdownConfig{
//		Requested: 30 * time.Second, Critical: 10 * time.Second, Machine: logind.New(logind.Config{}),
//		Store: part.OpenStore(filepath.Join(root, "shutdown"), log), Log: log, Metrics: registry,
//	})
//	parts := []part.Part{p, ...}
//	err = p.ShuttingDown() // makes the node not ready
//
// Package node has the order, the groups and the machine; this one
// connects it to an agent.
//
// Its methods may be called from any goroutine, once an agent has it.
//
// # Hooks
//
// Admit rejects every pod while the machine goes down. Over has static pods
// begin that ended or were rejected for a shutdown that was called off, or that
// is over because the machine has started again: nobody else would make another
// one of them. Restore reads what an agent before this one has seen; Run watches
// the machine.
//
// # Ownership
//
// [NewShutdown] has no side effects. All goroutines end with [Shutdown.Run]. The store is read
// and written off the loop alone; hooks on the loop read memory.
//
// # Faults
//
// The machine is watched whatever the disk and the runtime do: Run reads the
// store itself, and waits for it no longer than two seconds. What is read later is
// not used, and logged. While it is not known yet what an agent before saw, pods
// are admitted if the agent does not wait for Restore. Machine.Release must not
// block: hooks on the loop wait for it.
type Shutdown struct {
	cfg   ShutdownConfig
	block *shutdown.Manager
	host  part.Host
	past  *past
	// adopted makes the first shutdown wait until running pods are adopted.
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
		Requested: cfg.Requested, Critical: cfg.Critical, Groups: cfg.Groups, PassOn: cfg.PassOn,
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
func (p *Shutdown) Join(h part.Host) error {
	if p.host != nil {
		return errors.New("shutdown: the part belongs to another agent already")
	}
	p.host = h
	return nil
}

// ShuttingDown returns [shutdown.ErrShuttingDown] during a shutdown, which makes the node not
// ready; else nil. It does not block.
func (p *Shutdown) ShuttingDown() error { return p.block.Err() }

// Admit implements part.Admitter.
func (p *Shutdown) Admit(*v1.Pod, []*v1.Pod) *part.Rejection {
	if reason, message, ok := p.block.Admit(); !ok {
		return &part.Rejection{Reason: reason, Message: message, Final: true}
	}
	return nil
}

// Over implements part.Reviver.
func (p *Shutdown) Over(pod *v1.Pod, why podlife.Cause) bool {
	ended := why.Kind == podlife.Shutdown || why.Kind == podlife.Rejected && why.Reason == shutdown.ReasonNotAdmitted
	return ended && why.Returns(pod) && p.ShuttingDown() == nil
}

// Begins implements part.Reviver.
func (p *Shutdown) Begins(pod *v1.Pod, _ podlife.Cause) {
	p.cfg.Log.Info("pod begins again: the machine stays up", zap.String("pod", pod.Namespace+"/"+pod.Name))
}

// Restore implements part.Restorer: it returns when Run has read the state of the previous agent,
// or has given up.
func (p *Shutdown) Restore(ctx context.Context) error {
	if err := p.past.wait(ctx); err != nil {
		return fmt.Errorf("find out whether the machine was going down: %w", err)
	}
	return nil
}

// Run implements part.Runner: it reads the stored state and watches the machine. The wait for the
// disk is short, since the machine may shut down at any time.
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

package shutdown

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
	block "github.com/nodewright/nodewright/node/shutdown"
	"github.com/nodewright/nodewright/podmeta"
)

// Name is the name of the part.
const Name = "shutdown"

// Config defines how pods end when the machine goes down. Machine is required, unless
// there are neither times nor groups; the zero value of every other field means
// the default named beside it.
type Config struct {
	// Requested is the time of all pods together, Critical the part of it that
	// pods of the system have; 0: shutdowns are not handled.
	Requested, Critical time.Duration
	// Groups take the place of both; none.
	Groups []block.Group
	// PassOn gives time that a group did not need to the next; false.
	PassOn bool
	// Machine reports when the machine goes down: that of package logind, or of
	// node/shutdown.OnSignal. Its Release must not block.
	Machine block.Machine
	// Changed is called when the machine is about to go down, and when not after
	// all, one call after the other and off the loop; nothing is.
	Changed func(down bool)

	// Store remembers over a restart of the agent that the machine goes down; it
	// is forgotten.
	Store   part.Store
	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported
}

// Part handles shutdowns. Its methods may be called from any goroutine, once an
// agent has it.
type Part struct {
	cfg   Config
	block *block.Manager
	host  part.Host
	past  *past
	// adopted has the first shutdown wait for pods that run to be adopted.
	adopted sync.Once
}

var (
	_ part.Joiner   = (*Part)(nil)
	_ part.Runner   = (*Part)(nil)
	_ part.Restorer = (*Part)(nil)
	_ part.Admitter = (*Part)(nil)
	_ part.Reviver  = (*Part)(nil)
)

// New checks cfg and returns a Part at rest.
func New(cfg Config) (*Part, error) {
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	if cfg.Changed == nil {
		cfg.Changed = func(bool) {}
	}
	p := &Part{cfg: cfg, past: newPast(cfg.Store)}
	c := block.Config{
		Requested: cfg.Requested, Critical: cfg.Critical, Groups: cfg.Groups, PassOn: cfg.PassOn,
		Machine: cfg.Machine, Pods: pods{p}, Killer: pods{p}, Volumes: pods{p},
		Event:   func(reason, message string) { p.host.NodeEvent(v1.EventTypeNormal, reason, message) },
		Changed: p.changed, Log: cfg.Log, Metrics: cfg.Metrics,
	}
	if cfg.Store != nil {
		c.State = p.past
	}
	var err error
	p.block, err = block.New(c)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// changed follows the machine: pods that ended for a shutdown that is called off
// begin again.
func (p *Part) changed(down bool) {
	p.host.Housekeep()
	p.cfg.Changed(down)
}

// Name implements part.Part.
func (p *Part) Name() string { return Name }

// Join implements part.Joiner.
func (p *Part) Join(h part.Host) error {
	if p.host != nil {
		return errors.New("shutdown: the part belongs to another agent already")
	}
	p.host = h
	return nil
}

// ShuttingDown returns node/shutdown.ErrShuttingDown while the machine is about to
// go down, which makes the node not ready; else nil. It does not block.
func (p *Part) ShuttingDown() error { return p.block.Err() }

// Admit implements part.Admitter.
func (p *Part) Admit(*v1.Pod, []*v1.Pod) *part.Rejection {
	if reason, message, ok := p.block.Admit(); !ok {
		return &part.Rejection{Reason: reason, Message: message, Final: true}
	}
	return nil
}

// Revives implements part.Reviver.
func (p *Part) Revives(pod *v1.Pod, st *v1.PodStatus) bool {
	if !podmeta.IsStatic(pod) || st.Phase != v1.PodFailed || p.ShuttingDown() != nil {
		return false
	}
	switch st.Reason {
	case block.ReasonNotAdmitted:
		return true
	case block.ReasonTerminated:
		if w, known := p.host.Worker(pod.UID); known && !w.Finished {
			return false // its volumes are not gone yet
		}
		p.cfg.Log.Info("pod begins again: the machine stays up", zap.String("pod", pod.Namespace+"/"+pod.Name))
		return true
	}
	return false
}

// Restore implements part.Restorer: it returns when Run has read what an agent
// before this one has left, or has given that up.
func (p *Part) Restore(ctx context.Context) error {
	if err := p.past.wait(ctx); err != nil {
		return fmt.Errorf("find out whether the machine was going down: %w", err)
	}
	return nil
}

// Run implements part.Runner: it reads the past, and watches the machine. The
// machine may go down at any time, whatever the disk does: the wait is short.
func (p *Part) Run(ctx context.Context) error {
	var reading sync.WaitGroup
	defer reading.Wait()
	reading.Go(func() { p.past.restore(p.block.Restore) })
	short, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	if p.past.wait(short) != nil && short.Err() != nil { // Restore returns the error
		p.past.giveUp()
		_ = p.past.wait(ctx) // what has just been read is being taken over
	}
	return p.block.Run(ctx)
}

package claims

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/dra"
)

// Manager gives pods the devices of their ResourceClaims. A [*dra.Manager] is
// one. Only Restore and the methods with a ctx may wait for a driver or a disk.
type Manager interface {
	Node
	// Prepare makes a pod's claims ready, and Unprepare undoes that when its
	// containers have ended.
	Prepare(ctx context.Context, pod *v1.Pod) error
	Unprepare(ctx context.Context, uid types.UID) error
	// Attachment names the CDI devices of a container.
	Attachment(pod *v1.Pod, container string) ([]string, error)
	// Health is how the devices of a container are (KEP-4680).
	Health(uid types.UID, container string) []v1.ResourceStatus
	Holdings(uid types.UID, container string) []dra.Holding
}

// Node is the part of a [Manager] about the node as a whole.
type Node interface {
	// Restore is called before Run, with the names of the containers that
	// run, by pod, until it returns no error.
	Restore(running map[types.UID][]string) error
	Run(ctx context.Context) error
	// Ready is closed when drivers can register.
	Ready() <-chan struct{}
	// Retain unprepares, in the background, what pods have that are not known.
	Retain(known func(types.UID) bool)
	// Subscribe calls fn with the pods whose driver came, or whose devices
	// changed their health.
	Subscribe(fn func(dra.Change)) (cancel func())
}

var _ Manager = (*dra.Manager)(nil)

// Config holds what a Part needs. Manager is required.
type Config struct {
	// Manager has not been restored and does not run yet: the part does both.
	Manager Manager
	// Lookup, if the manager has it as its Claims, is filled in Join.
	Lookup *Lookup
	Log    *zap.Logger // silent
}

// Part gives pods their claims. Its methods may be called from any goroutine.
type Part struct {
	cfg      Config
	host     part.Host
	restored chan struct{}
}

var (
	_ part.Joiner   = (*Part)(nil)
	_ part.Restorer = (*Part)(nil)
	_ part.Runner   = (*Part)(nil)
	_ part.Preparer = (*Part)(nil)
	_ part.Compiler = (*Part)(nil)
	_ part.Reporter = (*Part)(nil)
	_ part.Stopper  = (*Part)(nil)
	_ part.Sweeper  = (*Part)(nil)
)

// New checks cfg and returns a Part that belongs to no agent yet.
func New(cfg Config) (*Part, error) {
	if cfg.Manager == nil {
		return nil, errors.New("claims: Config.Manager is required")
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return &Part{cfg: cfg, restored: make(chan struct{})}, nil
}

// Name implements part.Part.
func (p *Part) Name() string { return "claims" }

// Join implements part.Joiner. With a Lookup the agent has to know the
// ResourceClaims of its sources.
func (p *Part) Join(h part.Host) error {
	if p.host != nil {
		return errors.New("claims: the part belongs to an agent already")
	}
	if p.cfg.Lookup != nil {
		known, ok := h.(part.Claims)
		if !ok {
			return errors.New("claims: Config.Lookup is set, and the agent does not know the ResourceClaims of its sources (part.Claims)")
		}
		if !p.cfg.Lookup.from.CompareAndSwap(nil, &sources{h, known}) {
			return errors.New("claims: Config.Lookup belongs to another agent already")
		}
	}
	p.host = h
	return nil
}

// Restore implements part.Restorer: claims that are prepared
// for running pods are kept. It returns when they are known, or ctx ends: pods with
// claims wait for that.
func (p *Part) Restore(ctx context.Context) error {
	defer close(p.restored)
	return part.Insist(ctx, p.cfg.Log, func() error {
		if err := p.cfg.Manager.Restore(part.RunningContainers(p.host, p.cfg.Log)); err != nil {
			return fmt.Errorf("restore which pods use claims: %w", err)
		}
		return nil
	})
}

// Run implements part.Runner.
func (p *Part) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-p.restored:
	}
	defer p.cfg.Manager.Subscribe(func(c dra.Change) {
		for _, uid := range c.Pods {
			p.host.Resync(uid)
		}
	})()
	return p.cfg.Manager.Run(ctx)
}

// Ready is closed when drivers can register.
func (p *Part) Ready() <-chan struct{} { return p.cfg.Manager.Ready() }

// PreparesClaims implements part.Claimer.
func (*Part) PreparesClaims() {}

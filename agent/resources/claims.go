package resources

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

// ClaimManager prepares the devices of pods' ResourceClaims; *dra.Manager implements it. Only
// Restore and the methods with a ctx may wait for a driver or a disk.
type ClaimManager interface {
	ClaimNode
	// Prepare prepares a pod's claims. Unprepare undoes this when the pod's containers have
	// ended.
	Prepare(ctx context.Context, pod *v1.Pod) error
	Unprepare(ctx context.Context, uid types.UID) error
	// Attachment returns the names of the CDI devices of a container.
	Attachment(pod *v1.Pod, container string) ([]string, error)
	// Health returns the health of a container's devices (KEP-4680).
	Health(uid types.UID, container string) []v1.ResourceStatus
	Holdings(uid types.UID, container string) []dra.Holding
}

// ClaimNode has the calls of a [ClaimManager] for the whole node.
type ClaimNode interface {
	// Restore is called before Run, with the names of the running containers by pod, until it
	// succeeds.
	Restore(running map[types.UID][]string) error
	Run(ctx context.Context) error
	// Ready is closed when drivers can register.
	Ready() <-chan struct{}
	// Retain unprepares, in the background, the claims of pods that are not known.
	Retain(known func(types.UID) bool)
	// Subscribe calls fn for pods whose driver has registered, or whose devices' health has
	// changed.
	Subscribe(fn func(dra.Change)) (cancel func())
}

var _ ClaimManager = (*dra.Manager)(nil)

// ClaimsConfig configures [Claims]. Manager is required.
type ClaimsConfig struct {
	// Manager must not be restored or running yet: the part restores and runs it.
	Manager ClaimManager
	// Lookup is the manager's Config.Claims, if that is a ClaimLookup. Join completes it.
	Lookup *ClaimLookup
	Log    *zap.Logger // if nil, nothing is logged
}

// Claims is the part that gives pods the devices of their
// ResourceClaims (dynamic resource allocation, KEP-4381).
//
//	known := &resources.ClaimLookup{}
//	manager, err := dra.New(dra.Config{Claims: known, Store: store, Boot: boot})
//	...
//	p, err := resources.NewClaims(resources.ClaimsConfig{Manager: manager, Lookup: known, Log: log})
//	...
//	agent.New(agent.Config{Parts: []part.Part{devices, p}})
//
// Its methods may be called from any goroutine.
//
// # Hooks
//
// Restore passes the running containers to the manager. Run runs the manager
// afterwards, and requests a sync of pods whose driver has registered or whose devices
// have changed their health. Prepare makes the drivers prepare a pod's claims; waits
// and failures are events of the pod. Compile adds the CDI devices to containers.
// Report adds the health of devices (KEP-4680) to the status. Stopped makes the drivers
// unprepare the claims before the final status is shown, so a pod that has ended holds
// no claim. Sweep does the same for pods that are gone, in the background.
//
// # Ownership
//
// From Join on, the part owns the manager: no other code may call Restore, Run or
// Retain. Run owns every goroutine, and returns when no call of a driver is running.
//
// # Faults
//
// Compile and Report read only memory; the part has no hook on the loop. A driver that
// hangs delays the pods that use its claims. A disk that hangs delays all pods with
// claims, since prepared claims are stored. Pods without claims never wait, even before
// Restore has finished.
type Claims struct {
	cfg      ClaimsConfig
	host     part.Host
	restored chan struct{}
}

var (
	_ part.Joiner   = (*Claims)(nil)
	_ part.Restorer = (*Claims)(nil)
	_ part.Runner   = (*Claims)(nil)
	_ part.Preparer = (*Claims)(nil)
	_ part.Compiler = (*Claims)(nil)
	_ part.Reporter = (*Claims)(nil)
	_ part.Stopper  = (*Claims)(nil)
	_ part.Sweeper  = (*Claims)(nil)
)

// NewClaims checks cfg and returns a part.
func NewClaims(cfg ClaimsConfig) (*Claims, error) {
	if cfg.Manager == nil {
		return nil, errors.New("claims: ClaimsConfig.Manager is required")
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return &Claims{cfg: cfg, restored: make(chan struct{})}, nil
}

// Name implements part.Part.
func (p *Claims) Name() string { return "claims" }

// Join implements part.Joiner. If the configuration has a Lookup, the host must provide the
// ResourceClaims of its sources.
func (p *Claims) Join(h part.Host) error {
	if p.cfg.Lookup != nil {
		known, ok := h.(part.Claims)
		if !ok {
			return errors.New("ClaimsConfig.Lookup is set, and the agent does not know the ResourceClaims of its sources (part.Claims)")
		}
		if !p.cfg.Lookup.from.CompareAndSwap(nil, &sources{h, known}) {
			return errors.New("ClaimsConfig.Lookup belongs to another agent already")
		}
	}
	return part.SetHost(&p.host, h)
}

// Restore implements part.Restorer. It finds out which claims are prepared for running pods, and
// these stay prepared. Pods with claims wait until Restore has finished. It returns an error only
// if ctx ends first.
func (p *Claims) Restore(ctx context.Context) error {
	defer close(p.restored)
	return part.ReadWithRetry(ctx, p.cfg.Log, func() error {
		if err := p.cfg.Manager.Restore(part.RunningContainers(p.host, p.cfg.Log)); err != nil {
			return fmt.Errorf("restore prepared claims: %w", err)
		}
		return nil
	})
}

// Run implements part.Runner.
func (p *Claims) Run(ctx context.Context) error {
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
func (p *Claims) Ready() <-chan struct{} { return p.cfg.Manager.Ready() }

// PreparesClaims implements part.Claimer.
func (*Claims) PreparesClaims() {}

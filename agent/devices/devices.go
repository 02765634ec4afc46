package devices

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/fit"
)

// Manager knows devices, and who has them. A [*devicemgr.Manager] is one. Only
// Restore, Run, PreStart and the methods of an Admission may wait for a plugin or
// a disk.
type Manager interface {
	Node
	// Begin looks at what a pod asks for. ctx is that of all calls to plugins
	// that the Admission makes.
	Begin(ctx context.Context, pod *v1.Pod) (*devicemgr.Admission, error)
	// Attachment is what a container gets with its devices; an error, if it has
	// not got all that it asks for.
	Attachment(pod *v1.Pod, container string) (devicemgr.Attachment, error)
	// PreStart makes the devices of a container ready for its start.
	PreStart(ctx context.Context, pod *v1.Pod, container string) error
	// Health is how the devices of a container are (KEP-4680).
	Health(uid types.UID, container string) []v1.ResourceStatus
	Holdings(uid types.UID, container string) []devicemgr.Holding
	// Release gives back all that a pod has.
	Release(uid types.UID)
}

// Node is the part of a [Manager] about the node as a whole.
type Node interface {
	// Restore is called before Run, until it returns no error, with the names of the containers that
	// run, by pod.
	Restore(running map[types.UID][]string) error
	Run(ctx context.Context) error
	// Retain releases the pods that are not known.
	Retain(known func(types.UID) bool)
	// Subscribe calls fn when devices come, go, or change their health.
	Subscribe(fn func(devicemgr.Change)) (cancel func())
	Capacity() map[v1.ResourceName]devicemgr.Count
}

var _ Manager = (*devicemgr.Manager)(nil)

// Config holds what a Part needs. Manager is required.
type Config struct {
	// Manager has not been restored and does not run yet: the part does both.
	Manager Manager
	Log     *zap.Logger // silent
}

// Part gives pods devices. Its methods may be called from any goroutine.
type Part struct {
	cfg  Config
	bare fit.Placement // places nothing, for agents without a part that does
	host part.Host

	starts   *starts
	restored chan struct{} // closed, with mu held, once the manager has been restored

	mu       sync.Mutex
	early    early
	deciding map[types.UID]*decision // pods of which plugins take part in the admission
}

var (
	_ part.Joiner    = (*Part)(nil)
	_ part.Restorer  = (*Part)(nil)
	_ part.Runner    = (*Part)(nil)
	_ part.Provider  = (*Part)(nil)
	_ part.Reserver  = (*Part)(nil)
	_ part.Compiler  = (*Part)(nil)
	_ part.Creator   = (*Part)(nil)
	_ part.Reporter  = (*Part)(nil)
	_ part.Stopper   = (*Part)(nil)
	_ part.Sweeper   = (*Part)(nil)
	_ part.Explainer = (*Part)(nil)
)

// New checks cfg and returns a Part that belongs to no agent yet.
func New(cfg Config) (*Part, error) {
	if cfg.Manager == nil {
		return nil, errors.New("devices: Config.Manager is required")
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	bare, err := fit.NewPlacement(fit.PlacementConfig{})
	if err != nil {
		return nil, fmt.Errorf("devices: %w", err)
	}
	return &Part{
		cfg: cfg, bare: bare, starts: newStarts(), restored: make(chan struct{}),
		early: newEarly(), deciding: map[types.UID]*decision{},
	}, nil
}

// Name implements part.Part.
func (p *Part) Name() string { return "devices" }

// Join implements part.Joiner.
func (p *Part) Join(h part.Host) error {
	if p.host != nil {
		return errors.New("devices: the part belongs to an agent already")
	}
	p.host = h
	return nil
}

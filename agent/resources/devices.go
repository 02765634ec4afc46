package resources

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

// DeviceManager knows devices, and who has them. A [*devicemgr.Manager] is one. Only
// Restore, Run, PreStart and the methods of an Admission may wait for a plugin or
// a disk.
type DeviceManager interface {
	DeviceNode
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

// DeviceNode is the part of a [DeviceManager] about the node as a whole.
type DeviceNode interface {
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

var _ DeviceManager = (*devicemgr.Manager)(nil)

// DevicesConfig holds what [Devices] needs. Manager is required.
type DevicesConfig struct {
	// DeviceManager has not been restored and does not run yet: the part does both.
	Manager DeviceManager
	Log     *zap.Logger // silent
}

// Devices is the part that gives pods the devices of
// device plugins.
//
//	manager, err := devicemgr.New(devicemgr.Config{SocketDir: dir, Store: store})
//	...
//	p, err := resources.NewDevices(resources.DevicesConfig{Manager: manager, Log: log})
//	...
//	agent.New(agent.Config{Parts: []part.Part{p, placement}})
//
// It stands before the part that places CPUs and memory, whose decision its
// reservations take part in ([part.Aligned]). Without such a part they decide by
// themselves.
//
// Its methods may be called from any goroutine.
//
// # Hooks
//
// Restore hands the manager the containers that run: they keep what they have.
// Run runs the manager from then on, has pods synced whose devices changed their
// health, and pods admitted or started that waited for a plugin. Reserve looks at
// what a pod asks for; its Commit has the plugins allocate, when everything else
// has been reserved. Compile adds to containers what the plugins said, and
// BeforeCreate has plugins make devices ready, for which the start of a
// container waits a second at most: it is tried again when they are. Report adds
// the health of devices (KEP-4680). Stopped gives devices back, and Sweep those of
// pods that are gone.
//
// # Ownership
//
// The manager is the part's from Join on: nobody else calls Restore, Run, Release
// or Retain. Run owns every goroutine, and returns when no call of a plugin or of
// the manager's store is under way any more.
//
// # Faults
//
// Hooks on the loop read memory only. A plugin that hangs holds up the pods that
// ask for its resource, and a disk that hangs those that are being given devices.
// Until Restore is done, pods that ask for extended resources wait, with the
// reason DevicesNotReady, and nothing of pods that run is touched. Pods whose
// plugin is away wait with the same reason, until the manager gives the plugin
// up.
type Devices struct {
	cfg  DevicesConfig
	bare fit.Placement // places nothing, for agents without a part that does
	host part.Host

	starts   *starts
	restored chan struct{} // closed, with mu held, once the manager has been restored

	mu       sync.Mutex
	early    earlyDevices
	deciding map[types.UID]*decision // pods of which plugins take part in the admission
}

var (
	_ part.Joiner    = (*Devices)(nil)
	_ part.Restorer  = (*Devices)(nil)
	_ part.Runner    = (*Devices)(nil)
	_ part.Provider  = (*Devices)(nil)
	_ part.Reserver  = (*Devices)(nil)
	_ part.Compiler  = (*Devices)(nil)
	_ part.Creator   = (*Devices)(nil)
	_ part.Reporter  = (*Devices)(nil)
	_ part.Stopper   = (*Devices)(nil)
	_ part.Sweeper   = (*Devices)(nil)
	_ part.Explainer = (*Devices)(nil)
)

// NewDevices checks cfg and returns a Part that belongs to no agent yet.
func NewDevices(cfg DevicesConfig) (*Devices, error) {
	if cfg.Manager == nil {
		return nil, errors.New("devices: DevicesConfig.Manager is required")
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	bare, err := fit.NewPlacement(fit.PlacementConfig{})
	if err != nil {
		return nil, fmt.Errorf("devices: %w", err)
	}
	return &Devices{
		cfg: cfg, bare: bare, starts: newStarts(), restored: make(chan struct{}),
		early: newEarly(), deciding: map[types.UID]*decision{},
	}, nil
}

// Name implements part.Part.
func (p *Devices) Name() string { return "devices" }

// Join implements part.Joiner.
func (p *Devices) Join(h part.Host) error {
	if p.host != nil {
		return errors.New("devices: the part belongs to an agent already")
	}
	p.host = h
	return nil
}

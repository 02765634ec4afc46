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

// DeviceManager manages devices and their allocation; *devicemgr.Manager implements it. Only
// Restore, Run, PreStart and the methods of an Admission may wait for a plugin or a disk.
type DeviceManager interface {
	DeviceNode
	// Begin begins the admission of a pod. The Admission uses ctx for all calls to plugins.
	Begin(ctx context.Context, pod *v1.Pod) (*devicemgr.Admission, error)
	// Attachment returns what a container gets with its devices. It returns an error if devices
	// that the container requests are not allocated.
	Attachment(pod *v1.Pod, container string) (devicemgr.Attachment, error)
	// PreStart prepares the devices of a container for its start.
	PreStart(ctx context.Context, pod *v1.Pod, container string) error
	// Health returns the health of a container's devices (KEP-4680).
	Health(uid types.UID, container string) []v1.ResourceStatus
	Holdings(uid types.UID, container string) []devicemgr.Holding
	// Release releases all devices of a pod.
	Release(uid types.UID)
}

// DeviceNode has the calls of a [DeviceManager] for the whole node.
type DeviceNode interface {
	// Restore is called before Run, with the names of the running containers by pod, until it
	// succeeds.
	Restore(running map[types.UID][]string) error
	Run(ctx context.Context) error
	// Retain releases the devices of pods that are not known.
	Retain(known func(types.UID) bool)
	// Subscribe calls fn when devices appear, disappear, or change their health.
	Subscribe(fn func(devicemgr.Change)) (cancel func())
	Capacity() map[v1.ResourceName]devicemgr.Count
}

var _ DeviceManager = (*devicemgr.Manager)(nil)

// DevicesConfig configures [Devices]. Manager is required.
type DevicesConfig struct {
	// Manager has not been restored and does not run yet: the part restores and runs it.
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
	bare fit.Placement // for agents without a part for placement; it places nothing
	host part.Host

	starts   *starts
	restored chan struct{} // closed with mu held, when the manager has been restored

	mu       sync.Mutex
	early    earlyDevices
	deciding map[types.UID]*decision // pods with an admission in which plugins take part
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

// NewDevices checks cfg and returns a part.
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

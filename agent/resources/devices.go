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
	// Attachment returns what the plugins add to a container, such as device nodes and mounts.
	// It returns an error if devices that the container requests are not allocated.
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
	Log     *zap.Logger // if nil, nothing is logged
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
// In Config.Parts it must come before the part that places CPUs and memory: its
// reservations take part in the decision of that part ([part.Aligned]). Without such a
// part, devices are chosen on any NUMA nodes.
//
// Its methods may be called from any goroutine.
//
// # Hooks
//
// Restore passes the running containers to the manager, so that they keep their
// devices. Run runs the manager afterwards. It requests syncs of pods whose devices
// have changed their health, and admissions or starts of pods that waited for a plugin.
// Reserve checks the devices that a pod requests; the Commit of its reservation makes
// the plugins allocate them, when everything else has been reserved. Compile adds the
// plugins' answers to containers. BeforeCreate makes plugins prepare devices; the start
// of a container waits at most a second for this, and is tried again when they are
// prepared. Report adds the health of devices (KEP-4680). Stopped releases devices, and
// Sweep releases those of pods that are gone.
//
// # Ownership
//
// From Join on, the part owns the manager: no other code may call Restore, Run, Release
// or Retain. Run owns every goroutine, and returns when no call of a plugin or of the
// manager's store is running.
//
// # Faults
//
// Hooks on the loop read only memory. A plugin that hangs delays the pods that request
// its resource. A disk that hangs delays the pods to which devices are being allocated.
// Until Restore has finished, pods that request extended resources wait, with the
// reason DevicesNotReady, and running pods are not changed. Pods whose plugin is
// disconnected wait with the same reason, until the manager gives up on the plugin.
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
func (p *Devices) Join(h part.Host) error { return part.SetHost(&p.host, h) }

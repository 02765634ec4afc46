package nodeagent

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/agent/pressure"
	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/dra"
	"github.com/nodewright/nodewright/eviction"
	"github.com/nodewright/nodewright/node/stats"
	"github.com/nodewright/nodewright/pluginmgr"
	"github.com/nodewright/nodewright/volumemgr"
)

// Facts are what the parts of a node let others know: its cluster, its services,
// and each other. A maker replaces what its part knows better. No function is ever
// nil: as long as no part says more, they answer for a node of which nothing is
// known. They may be called from any goroutine once [New] has returned, and none
// blocks that has no ctx.
type Facts struct {
	// OwnCPUs reports whether a container of the pod has CPUs of its own.
	OwnCPUs func(*v1.Pod) bool
	// Pressure are the node's conditions of pressure.
	Pressure func() []v1.NodeCondition
	// ShuttingDown returns why the node is not ready, while the machine is about
	// to go down; else nil.
	ShuttingDown func() error
	// FreshDevices reports whether no device plugin has ever registered here.
	FreshDevices func() bool
	// ListImages says which images there are, and what would become of them.
	ListImages func(context.Context) (local.Images, error)

	// The agent knows whether the runtime answers, which volumes are in use, and
	// what the node has: see the methods of agent.Agent.
	Healthy      func() error
	VolumesInUse func() (volumes []v1.UniqueVolumeName, known bool)
	Resources    func() (capacity, allocatable v1.ResourceList)

	// What parts after them may take; nil where no part has it.
	Usage         Usage
	EvictionStats eviction.Stats
	Reclaimer     eviction.Reclaimer
	CPUs          devicemgr.AssignedCPUs
	Memory        devicemgr.AssignedMemory
	Devices       devicemgr.AssignedDevices
	Claims        devicemgr.PreparedClaims
	// Drivers are the DRA drivers that are connected, by name; nil where no part has
	// any. It answers from memory.
	Drivers func() []string
	// OfferDevices takes a device plugin and OfferDriver a DRA driver of this process, as
	// the methods Offer of devicemgr.Manager and dra.Manager do: once the agent is ready.
	// nil where no part has any.
	OfferDevices func(ctx context.Context, resource string, p devicemgr.Plugin) error
	OfferDriver  func(name, instance string, d dra.Driver) error
	// PluginHandlers take plugins by type, once all of PluginsAfter are closed.
	PluginHandlers map[string][]pluginmgr.Handler
	PluginsAfter   []<-chan struct{}

	// VolumePlugins make kinds of volumes beside the usual ones.
	VolumePlugins []volumemgr.Plugin
	// StorageReady returns why the node is not ready for volumes of its drivers,
	// else nil, and Attached which volumes a controller has attached that pods
	// use, or are about to.
	StorageReady func() error
	Attached     func() []v1.UniqueVolumeName

	// Checks are those of /healthz, beside the agent's own.
	Checks []Check

	// Written while New runs and read afterwards, so that they need no lock.
	changed, onDrivers []func()
}

// Usage is what the node and its pods use. [pressure.Stats] is
// one. It also measures for /metrics/cadvisor; see details.
type Usage interface {
	local.Measurer
	Details() ([]pressure.PodDetail, error)
	Devices() []stats.Device
}

// Check is one of /healthz.
type Check struct {
	Name string
	Err  func() error // nil if all is well; it must not block
}

// newFacts returns facts of a node of which nothing is known. They say what is safe
// then: not ready, no pressure, no volumes known.
func newFacts() *Facts {
	return &Facts{
		OwnCPUs:      func(*v1.Pod) bool { return false },
		Pressure:     func() []v1.NodeCondition { return nil },
		ShuttingDown: func() error { return nil },
		FreshDevices: func() bool { return false },
		ListImages: func(context.Context) (local.Images, error) {
			return local.Images{}, unsupported("this agent does not tell of images")
		},
		Healthy:      func() error { return errors.New("the agent is not made yet") },
		VolumesInUse: func() ([]v1.UniqueVolumeName, bool) { return nil, false },
		Resources:    func() (capacity, allocatable v1.ResourceList) { return nil, nil },

		StorageReady: func() error { return nil },
		Attached:     func() []v1.UniqueVolumeName { return nil },

		PluginHandlers: map[string][]pluginmgr.Handler{},
	}
}

// OnChange has fn called when what Pressure or ShuttingDown answer has changed,
// from any goroutine. It must not block. It is for makers, while New runs.
func (f *Facts) OnChange(fn func()) { f.changed = append(f.changed, fn) }

// Changed calls what OnChange was given.
func (f *Facts) Changed() {
	for _, fn := range f.changed {
		fn()
	}
}

// OnDrivers has fn called when what Drivers answers may have changed, from any
// goroutine. It must not block. It is for makers, while New runs.
func (f *Facts) OnDrivers(fn func()) { f.onDrivers = append(f.onDrivers, fn) }

// DriversChanged calls what OnDrivers was given.
func (f *Facts) DriversChanged() {
	for _, fn := range f.onDrivers {
		fn()
	}
}

// unsupported is an error about a question that no part answers.
func unsupported(text string) error { return &unsupportedError{text} }

// unsupportedError is errors.ErrUnsupported with a text for people.
type unsupportedError struct{ text string }

func (e *unsupportedError) Error() string        { return e.text }
func (e *unsupportedError) Is(target error) bool { return target == errors.ErrUnsupported }

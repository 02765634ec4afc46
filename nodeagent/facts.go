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

// Facts are functions through which the parts of a node share values with its
// cluster, its services, and each other. A maker replaces those that its part
// implements. No function is nil: the defaults return safe values of an unknown
// node. They may be called from any goroutine once [New] has returned, and a
// function without ctx does not block.
type Facts struct {
	// OwnCPUs reports whether a container of the pod has exclusive CPUs.
	OwnCPUs func(*v1.Pod) bool
	// Pressure returns the node's pressure conditions.
	Pressure func() []v1.NodeCondition
	// ShuttingDown returns why the node is not ready during a shutdown, else nil.
	ShuttingDown func() error
	// FreshDevices reports whether no device plugin has ever registered here.
	FreshDevices func() bool
	// ListImages returns the images, and what garbage collection would do with
	// them.
	ListImages func(context.Context) (local.Images, error)

	// The agent implements these: its runtime's health, the volumes in use, and the
	// node's resources; see the methods of agent.Agent.
	Healthy      func() error
	VolumesInUse func() (volumes []v1.UniqueVolumeName, known bool)
	Resources    func() (capacity, allocatable v1.ResourceList)

	// Components for later parts; nil if no part has them.
	Usage         Usage
	EvictionStats eviction.Stats
	Reclaimer     eviction.Reclaimer
	CPUs          devicemgr.AssignedCPUs
	Memory        devicemgr.AssignedMemory
	Devices       devicemgr.AssignedDevices
	Claims        devicemgr.PreparedClaims
	// Drivers returns the names of the connected DRA drivers; nil if no part has
	// any. It reads only memory.
	Drivers func() []string
	// OfferDevices adds a device plugin and OfferDriver a DRA driver of this
	// process, like the methods Offer of devicemgr.Manager and dra.Manager: once
	// the agent is ready. Nil if no part has them.
	OfferDevices func(ctx context.Context, resource string, p devicemgr.Plugin) error
	OfferDriver  func(name, instance string, d dra.Driver) error
	// PluginHandlers handle plugins by type, once all of PluginsAfter are closed.
	PluginHandlers map[string][]pluginmgr.Handler
	PluginsAfter   []<-chan struct{}

	// VolumePlugins are additional kinds of volumes.
	VolumePlugins []volumemgr.Plugin
	// StorageReady returns why the node is not ready for CSI volumes, else nil;
	// Attached returns the volumes attached by a controller that pods use or wait
	// for.
	StorageReady func() error
	Attached     func() []v1.UniqueVolumeName

	// Checks are checks of /healthz in addition to the agent's own.
	Checks []Check

	// Written while New runs and read afterwards, so that they need no lock.
	changed, onDrivers []func()
}

// Usage measures the usage of the node and its pods. [pressure.Stats] implements
// it. It also measures for /metrics/cadvisor; see details.
type Usage interface {
	local.Measurer
	Details() ([]pressure.PodDetail, error)
	Devices() []stats.Device
}

// Check is a check of /healthz.
type Check struct {
	Name string
	Err  func() error // nil if healthy; it must not block
}

// newFacts returns the safe values of an unknown node: not ready, no pressure, no
// volumes known.
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

// OnChange adds a function that is called, from any goroutine, when the result of
// Pressure or ShuttingDown changes. It must not block. It is for makers, while New
// runs.
func (f *Facts) OnChange(fn func()) { f.changed = append(f.changed, fn) }

// Changed calls the functions added by OnChange.
func (f *Facts) Changed() {
	for _, fn := range f.changed {
		fn()
	}
}

// OnDrivers adds a function that is called, from any goroutine, when the result of
// Drivers may have changed. It must not block. It is for makers, while New runs.
func (f *Facts) OnDrivers(fn func()) { f.onDrivers = append(f.onDrivers, fn) }

// DriversChanged calls the functions added by OnDrivers.
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

package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/agent/pressure"
	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/dra"
	"github.com/nodewright/nodewright/eviction"
	"github.com/nodewright/nodewright/node/stats"
	"github.com/nodewright/nodewright/pluginmgr"
	"github.com/nodewright/nodewright/volumemgr"
)

// Facts are values that the parts of a node share with its cluster, its services, and each
// other. A maker replaces the functions that its part implements. The order of makers does
// not matter for functions, since they are called only when all parts are made. No function
// is nil: until it is replaced, it returns a safe value for a node of which nothing is
// known. The functions may be called from any goroutine once [New] has returned; those
// without ctx do not block. A value that a maker needs while it makes its part is a [Fact].
type Facts struct {
	// OwnCPUs reports whether a container of the pod has exclusive CPUs.
	OwnCPUs func(*v1.Pod) bool
	// Pressure returns the node's pressure conditions.
	Pressure func() []v1.NodeCondition
	// ShuttingDown returns the reason why the node is not ready during a shutdown. Otherwise it
	// returns nil.
	ShuttingDown func() error
	// FreshDevices reports whether no device plugin has ever registered on this node.
	FreshDevices func() bool
	// ListImages returns the images on the node, and what garbage collection would do with them.
	ListImages func(context.Context) (local.Images, error)

	// These three are methods of agent.Agent: the health of the runtime, the volumes in
	// use, and the node's resources.
	Healthy      func() error
	VolumesInUse func() (volumes []v1.UniqueVolumeName, known bool)
	Resources    func() (capacity, allocatable v1.ResourceList)

	// Usage measures the usage of the node and its pods. It is nil if no part measures it. Read
	// it only after all parts are made.
	Usage Usage

	// Components of parts that the makers of other parts may need before all parts are made: see
	// Fact.
	EvictionStats Fact[eviction.Stats]
	Reclaimer     Fact[eviction.Reclaimer]
	CPUs          Fact[devicemgr.AssignedCPUs]
	Memory        Fact[devicemgr.AssignedMemory]
	Devices       Fact[devicemgr.AssignedDevices]
	Claims        Fact[devicemgr.PreparedClaims]
	// Plugins are the kinds of plugins that parts accept; see HandlePlugins.
	Plugins Fact[[]PluginKind]

	// Drivers returns the names of the connected DRA drivers. It returns nil if no part has
	// drivers. It reads only memory.
	Drivers func() []string
	// OfferDevices adds a device plugin that runs in this process, and OfferDriver a
	// DRA driver. They are the methods Offer of devicemgr.Manager and dra.Manager. Call
	// them once the agent is ready. Each is nil if no part provides it.
	OfferDevices func(ctx context.Context, resource string, p devicemgr.Plugin) error
	OfferDriver  func(name, instance string, d dra.Driver) error

	// VolumePlugins are additional kinds of volumes.
	VolumePlugins []volumemgr.Plugin
	// StorageReady returns the reason why the node is not ready for CSI volumes, or nil if it is.
	// Attached returns the volumes that a controller has attached and that pods use or wait for.
	StorageReady func() error
	Attached     func() []v1.UniqueVolumeName

	// Checks are checks of /healthz in addition to the agent's checks.
	Checks []Check

	// Functions that OnChange and OnDrivers have added. They are only added while New runs, and
	// so need no lock.
	changed, onDrivers []func()
	order              *order
}

// Usage measures the usage of the node and its pods. [pressure.Stats] implements
// it. It also measures for /metrics/cadvisor; see details.
type Usage interface {
	local.Measurer
	// Totals measures for the history of usage; see [pressure.Stats.Totals].
	Totals(ctx context.Context) (*statsapi.Summary, error)
	Details() ([]pressure.PodDetail, error)
	Devices() []stats.Device
}

// Check is a check of /healthz.
type Check struct {
	Name string
	Err  func() error // nil if healthy; it must not block
}

// Fact is a value that one maker provides and later makers in the list need to make their parts.
// [New] returns an error if a maker provides a value that an earlier maker has already needed.
type Fact[T any] struct {
	value  T
	name   string
	order  *order
	needed []string // makers that needed the value of before
}

// order records which maker runs, so that Facts know which makers have given or needed their
// values.
type order struct {
	maker string // the maker that runs now; "" if none
	errs  []error
}

// Give sets the value. If several makers give a value, the last one counts.
func (f *Fact[T]) Give(v T) {
	f.value = v
	for _, earlier := range f.needed {
		f.order.errs = append(f.order.errs, fmt.Errorf("%s needs Facts.%s, which %s gives after it in the list of parts: list %[3]s before %[1]s", earlier, f.name, f.order.maker))
	}
	f.needed = nil
}

// Need returns the value. If no maker has given a value, it returns the zero value.
func (f *Fact[T]) Need() T {
	if f.order.maker != "" && !slices.Contains(f.needed, f.order.maker) {
		f.needed = append(f.needed, f.order.maker)
	}
	return f.value
}

// fact returns a Fact without a value.
func fact[T any](o *order, name string) Fact[T] { return Fact[T]{name: name, order: o} }

// PluginKind is a kind of plugins that a part accepts.
type PluginKind struct {
	Type    string // as the plugins name it: pluginmgr.CSIPlugin, ...
	Handler pluginmgr.Handler
	// After is closed when plugins of this kind can be registered. Until then the agent searches
	// for no plugins of any kind. If After is nil, it searches at once.
	After <-chan struct{}
}

// HandlePlugins adds a kind of plugins to those that parts accept.
func (f *Facts) HandlePlugins(k PluginKind) { f.Plugins.Give(append(f.Plugins.value, k)) }

// newFacts returns the safe values of a node of which nothing is known: it is not ready, has no
// pressure, and uses no volumes.
func newFacts() *Facts {
	o := &order{}
	return &Facts{
		EvictionStats: fact[eviction.Stats](o, "EvictionStats"),
		Reclaimer:     fact[eviction.Reclaimer](o, "Reclaimer"),
		CPUs:          fact[devicemgr.AssignedCPUs](o, "CPUs"),
		Memory:        fact[devicemgr.AssignedMemory](o, "Memory"),
		Devices:       fact[devicemgr.AssignedDevices](o, "Devices"),
		Claims:        fact[devicemgr.PreparedClaims](o, "Claims"),
		Plugins:       fact[[]PluginKind](o, "Plugins"),
		order:         o,

		OwnCPUs:      func(*v1.Pod) bool { return false },
		Pressure:     func() []v1.NodeCondition { return nil },
		ShuttingDown: func() error { return nil },
		FreshDevices: func() bool { return false },
		ListImages: func(context.Context) (local.Images, error) {
			return local.Images{}, unsupported("this agent does not list images")
		},
		Healthy:      func() error { return errors.New("the agent has not been built yet") },
		VolumesInUse: func() ([]v1.UniqueVolumeName, bool) { return nil, false },
		Resources:    func() (capacity, allocatable v1.ResourceList) { return nil, nil },

		StorageReady: func() error { return nil },
		Attached:     func() []v1.UniqueVolumeName { return nil },
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

// unsupported returns an error for a request that no part of the node supports.
func unsupported(text string) error { return &unsupportedError{text} }

// unsupportedError is errors.ErrUnsupported with a text for people.
type unsupportedError struct{ text string }

func (e *unsupportedError) Error() string        { return e.text }
func (e *unsupportedError) Is(target error) bool { return target == errors.ErrUnsupported }

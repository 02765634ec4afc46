package status

import (
	"net/netip"

	v1 "k8s.io/api/core/v1"
)

// The values that a status is made of. Whoever collects them, be it the Manager or
// a test, Apply sees no difference.

// Facts are what a machine is.
type Facts struct {
	// Capacity has cpu, memory and hugepages-<size>; ephemeral-storage too, if
	// the node counts it. The number of pods is none of the machine's.
	Capacity v1.ResourceList
	Swap     int64 // bytes; 0 if there is none

	// MachineID is that of machine-id(5), SystemUUID the firmware's, BootID the
	// kernel's of this boot. Each is "" if unknown.
	MachineID, SystemUUID, BootID string
	Kernel, OSImage               string
	// OS and Arch are Go's names; those of this process if empty.
	OS, Arch string
}

// Devices are the totals of device plugins. Package devicemgr counts them.
type Devices struct {
	Capacity, Allocatable v1.ResourceList
	// Gone are resources whose plugin is away for good: they stay visible,
	// with none.
	Gone []v1.ResourceName
}

// RuntimeState is what a container runtime says of itself.
type RuntimeState struct {
	// Name and Version are those of the CRI's Status and Version calls.
	Name, Version string
	// NotReady and NetworkNotReady are the texts of conditions that are not
	// met; "" if they are.
	NotReady, NetworkNotReady string
	// Handlers may be in any order; see sortedHandlers.
	Handlers []v1.NodeRuntimeHandler
	Features *v1.NodeFeatures // nil: it does not say
}

// beginning is how long an agent's own checks may fail after its start without an effect on
// a Node that is ready: as long as between two looks at everything.
const beginning = refreshEvery

// Problems keep a node from being ready. All are nil on a healthy one. Their texts
// become the message of Ready, in this order.
type Problems struct {
	Runtime, Network, Storage, Shutdown error
	// Beginning means that Runtime is due to the agent's own checks alone, and that the
	// agent began a moment ago. A condition Ready that is True is left alone meanwhile.
	Beginning bool
}

// Addressing is what a node's addresses are made of.
type Addressing struct {
	// Hostname is that of the node: trimmed, lower case.
	Hostname string
	// NodeIPs are those that were asked for; see ParseNodeIPs. At most two.
	NodeIPs []netip.Addr
	// External reports that a cloud provider outside of the agent sets the
	// addresses.
	External bool
	// Host are the addresses of the machine's interfaces.
	Host []netip.Addr
	// Resolved are those that DNS has for the node's name, in its order.
	Resolved []netip.Addr
	// Default4 and Default6 are the sources of the default routes; the zero
	// Addr if there is none.
	Default4, Default6 netip.Addr
}

// Inputs are all that Apply needs to know.
type Inputs struct {
	Addressing Addressing

	// MaxPods bounds the pods, and so does PodsPerCore unless it is 0.
	MaxPods, PodsPerCore int64
	// Reserved is what pods cannot have: the system's and the agent's share
	// and the hard thresholds of eviction.
	Reserved v1.ResourceList
	// LocalStorage reports that ephemeral-storage is counted, so that a node
	// without it is not ready.
	LocalStorage bool
	Facts        Facts
	FactsErr     error // why Facts are empty
	Devices      Devices

	// Version is the agent's, as in "v1.37.2"; Port that of its server.
	Version string
	Port    int32

	// Images are shown by showImages. With an error none are.
	Images    []v1.ContainerImage
	ImagesErr error
	MaxImages int

	// They stay those of the last answer while a runtime is silent.
	RuntimeName, RuntimeVersion string // of one that does not answer: "" is Unknown
	Handlers                    []v1.NodeRuntimeHandler
	Features                    *v1.NodeFeatures

	// These are the eviction manager's findings, with their transition periods
	// applied.
	MemoryPressure, DiskPressure, PIDPressure bool
	Problems                                  Problems
	// Warnings are soft requirements that are not met.
	Warnings []string

	// VolumesInUse are sorted; they count once VolumesSynced.
	VolumesInUse  []v1.UniqueVolumeName
	VolumesSynced bool
	// Declared are the features of KEP-5328; nil leaves the node's alone.
	Declared []string
}

// Event is something to tell of a node. Type is Normal or Warning of the core API;
// the other two are the kubelet's words.
type Event struct{ Type, Reason, Message string }

// Seen is what Apply remembers from one call to the next. The zero value is
// that of an agent that has just started.
type Seen struct {
	// rebooted keeps the event of a reboot from a second report while the API
	// server's boot ID is still the old one.
	rebooted bool
	// unschedulable is the spec's value of the last call, false at the start.
	unschedulable bool
}

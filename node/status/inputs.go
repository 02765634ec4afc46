package status

import (
	"net/netip"

	v1 "k8s.io/api/core/v1"
)

// The inputs of a status, for Apply. The Manager or a test collects them.

// Facts describes a machine.
type Facts struct {
	// Capacity has cpu, memory and hugepages-<size>, and ephemeral-storage if the
	// node counts it. The number of pods is not part of it.
	Capacity v1.ResourceList
	Swap     int64 // bytes; 0 if there is none

	// MachineID is the content of machine-id(5). SystemUUID comes from the firmware, and BootID
	// from the kernel. Each is "" if it is not known.
	MachineID, SystemUUID, BootID string
	Kernel, OSImage               string
	// OS and Arch are the names of GOOS and GOARCH. If one is "", the value of this process is
	// used.
	OS, Arch string
}

// Devices are the totals of device plugins. Package devicemgr counts them.
type Devices struct {
	Capacity, Allocatable v1.ResourceList
	// Gone are resources whose plugin is permanently gone. The status shows them with a
	// quantity of 0.
	Gone []v1.ResourceName
}

// RuntimeState is a container runtime's own state.
type RuntimeState struct {
	// Name and Version come from the CRI's Status and Version calls.
	Name, Version string
	// NotReady and NetworkNotReady are the texts of conditions that are not met. A condition that
	// is met has the text "".
	NotReady, NetworkNotReady string
	// Handlers may be in any order; see sortedHandlers.
	Handlers []v1.NodeRuntimeHandler
	Features *v1.NodeFeatures // if nil, no features are reported
}

// beginning is how long after the agent's start failures of its own checks do not affect a ready
// Node. It equals the interval of full checks.
const beginning = refreshEvery

// Problems keep a node from being ready. All are nil on a healthy one. Their texts
// become the message of Ready, in this order.
type Problems struct {
	Runtime, Network, Storage, Shutdown error
	// Beginning means that the agent has just started, and that Runtime is only an error of the
	// agent's own checks. A condition Ready that is True does not change then.
	Beginning bool
}

// Addressing is the inputs of a node's addresses.
type Addressing struct {
	// Hostname is the host name of the node: trimmed and in lower case.
	Hostname string
	// NodeIPs are the configured addresses, at most two; see ParseNodeIPs.
	NodeIPs []netip.Addr
	// External reports that an external cloud provider sets the addresses.
	External bool
	// Host lists the addresses of the machine's interfaces.
	Host []netip.Addr
	// Resolved lists the addresses of the node's name in DNS, in the order of the answer.
	Resolved []netip.Addr
	// Default4 and Default6 are the source addresses of the default routes. Without a route, the
	// address is the zero Addr.
	Default4, Default6 netip.Addr
}

// Inputs are the facts from which Apply computes the status of the node.
type Inputs struct {
	Addressing Addressing

	// MaxPods limits the number of pods. PodsPerCore limits it too, unless it is 0.
	MaxPods, PodsPerCore int64
	// Reserved is the amount that pods cannot have: the resources reserved for the
	// system and the agent, and the hard eviction thresholds.
	Reserved v1.ResourceList
	// LocalStorage reports that ephemeral-storage is counted, so that a node
	// without it is not ready.
	LocalStorage bool
	Facts        Facts
	FactsErr     error // why Facts is empty; nil if it is not
	Devices      Devices

	// Version is the version of the agent, such as "v1.37.2". Port is the port of its
	// server.
	Version string
	Port    int32

	// Images are shown by showImages. After an error no images are shown.
	Images    []v1.ContainerImage
	ImagesErr error
	MaxImages int

	// RuntimeName and the following fields are the runtime's last answer. Before the
	// first answer name and version are "", which the status shows as Unknown.
	RuntimeName, RuntimeVersion string
	Handlers                    []v1.NodeRuntimeHandler
	Features                    *v1.NodeFeatures

	// MemoryPressure, DiskPressure and PIDPressure are conditions of the eviction
	// manager, with its transition periods applied.
	MemoryPressure, DiskPressure, PIDPressure bool
	Problems                                  Problems
	// Warnings are soft requirements that are not met.
	Warnings []string

	// VolumesInUse are sorted. They are written only if VolumesSynced is true.
	VolumesInUse  []v1.UniqueVolumeName
	VolumesSynced bool
	// Declared lists the declared features (KEP-5328). If it is nil, the node keeps its list.
	Declared []string
}

// Event is an event of a node. Type is Normal or Warning of the core API; Reason and
// Message are the kubelet's texts.
type Event struct{ Type, Reason, Message string }

// Seen is Apply's state between calls. The zero value is for an agent that has just started.
type Seen struct {
	// rebooted prevents a second event of a reboot while the API server still has
	// the old boot ID.
	rebooted bool
	// unschedulable is spec.unschedulable of the last call; false at the start.
	unschedulable bool
}

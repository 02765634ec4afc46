package status

import (
	"cmp"
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// capacityOf returns the node's capacity: the machine's resources, pods, and devices. Entries that
// the agent does not write are kept, because other programs set them as opaque resources. The
// result is a new list, which shares the quantities of the inputs. If the machine cannot be read,
// its resources are zero, so that no more pods are scheduled to it; the number of pods is kept.
func capacityOf(before v1.ResourceList, in *Inputs) v1.ResourceList {
	out := v1.ResourceList{}
	maps.Copy(out, before)
	if in.FactsErr != nil {
		out[v1.ResourceCPU] = *resource.NewMilliQuantity(0, resource.DecimalSI)
		out[v1.ResourceMemory] = resource.MustParse("0Gi")
		out[v1.ResourcePods] = *resource.NewQuantity(in.MaxPods, resource.DecimalSI)
	} else {
		// Sizes of huge pages that the kernel no longer has must not be
		// schedulable.
		maps.DeleteFunc(out, func(name v1.ResourceName, _ resource.Quantity) bool {
			_, has := in.Facts.Capacity[name]
			return IsHugePages(name) && !has
		})
		maps.Copy(out, in.Facts.Capacity)
		// Both are bounds, and the smaller one counts.
		pods := in.MaxPods
		if cores := in.Facts.Capacity.Cpu().Value(); in.PodsPerCore > 0 {
			pods = min(pods, cores*in.PodsPerCore)
		}
		out[v1.ResourcePods] = *resource.NewQuantity(pods, resource.DecimalSI)
		// A node that does not isolate local storage must not promise any.
		if !in.LocalStorage {
			delete(out, v1.ResourceEphemeralStorage)
		}
	}
	// Devices come last: the figure of a device plugin is used for its own resource.
	for name, q := range in.Devices.Capacity {
		out[name] = q
	}
	// A missing entry would not remove an earlier one from the status, so the value is zero.
	for _, name := range in.Devices.Gone {
		out[name] = *resource.NewQuantity(0, resource.DecimalSI)
	}
	return out
}

// allocatableOf returns the amount of a capacity that pods can have. Memory
// reserved for huge pages is subtracted. The result is a new list without negative
// values: in.Reserved may exceed a small machine.
func allocatableOf(before, capacity v1.ResourceList, in *Inputs) v1.ResourceList {
	out := v1.ResourceList{}
	for name, q := range before {
		// An extended resource without capacity must not stay allocatable.
		if _, has := capacity[name]; has || !IsExtended(name) && !IsHugePages(name) && name != v1.ResourceEphemeralStorage {
			out[name] = q
		}
	}
	for name, q := range capacity {
		q = q.DeepCopy()
		if r, ok := in.Reserved[name]; ok {
			q.Sub(r)
		}
		out[name] = floor(q)
	}
	// Unhealthy devices are in the capacity, but not in here.
	for name, q := range in.Devices.Allocatable {
		out[name] = q
	}
	for _, name := range in.Devices.Gone {
		out[name] = *resource.NewQuantity(0, resource.DecimalSI)
	}
	memory, ok := out[v1.ResourceMemory]
	if !ok {
		return out
	}
	// Huge pages are part of MemTotal, but ordinary allocations cannot use them. They are
	// subtracted once, after the reservations.
	for name, q := range capacity {
		if IsHugePages(name) {
			memory.Sub(q)
		}
	}
	out[v1.ResourceMemory] = floor(memory)
	return out
}

// floor returns q, or zero if q is negative: the API does not allow negative
// quantities.
func floor(q resource.Quantity) resource.Quantity {
	if q.Sign() < 0 {
		q.Set(0)
	}
	return q
}

// IsHugePages reports whether a resource is memory in huge pages of one size.
func IsHugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// IsExtended reports whether a resource is neither Kubernetes' own nor a request of
// a quota (k8s.io/kubernetes/pkg/apis/core/v1/helper, by its contract).
func IsExtended(name v1.ResourceName) bool {
	domain, _, has := strings.Cut(string(name), "/")
	return has && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io") && !strings.HasPrefix(string(name), "requests.")
}

// setMachine writes capacity, allocatable and the identity of the machine. It also
// reports a reboot, once for each process.
func setMachine(node *v1.Node, in *Inputs, seen *Seen) []Event {
	s := &node.Status
	s.Capacity = capacityOf(s.Capacity, in)
	s.Allocatable = allocatableOf(s.Allocatable, s.Capacity, in)
	// Earlier identities are kept: a cleared boot ID would hide the next reboot.
	if in.FactsErr != nil {
		return nil
	}
	info := &s.NodeInfo
	var events []Event
	// Compared with the API server's value from before this process, to detect a
	// reboot that the agent did not see.
	if info.BootID != "" && in.Facts.BootID != "" && info.BootID != in.Facts.BootID && !seen.rebooted {
		seen.rebooted = true
		events = append(events, Event{v1.EventTypeWarning, "Rebooted", "Node " + node.Name + " has been rebooted, boot id: " + in.Facts.BootID})
	}
	// Values that cannot be read now are kept: without a boot ID the next reboot
	// would not be reported.
	info.MachineID, info.SystemUUID = cmp.Or(in.Facts.MachineID, info.MachineID), cmp.Or(in.Facts.SystemUUID, info.SystemUUID)
	info.BootID = cmp.Or(in.Facts.BootID, info.BootID)
	// Nil, not zero: the field is only for nodes with swap (KEP-2400).
	info.Swap = nil
	if swap := in.Facts.Swap; swap != 0 {
		info.Swap = &v1.NodeSwapStatus{Capacity: &swap}
	}
	return events
}

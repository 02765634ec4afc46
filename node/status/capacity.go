package status

import (
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Capacity is what a node has: its machine's resources, pods, and devices.
// Keys of before that are nobody's here stay, as they are opaque resources that
// others have put there.
func Capacity(before v1.ResourceList, in *Inputs) v1.ResourceList {
	out := v1.ResourceList{}
	maps.Copy(out, before)
	if in.FactsErr != nil {
		out[v1.ResourceCPU] = *resource.NewMilliQuantity(0, resource.DecimalSI)
		out[v1.ResourceMemory] = resource.MustParse("0Gi")
		out[v1.ResourcePods] = *resource.NewQuantity(in.MaxPods, resource.DecimalSI)
	} else {
		maps.DeleteFunc(out, func(name v1.ResourceName, _ resource.Quantity) bool {
			_, has := in.Facts.Capacity[name]
			return IsHugePages(name) && !has
		})
		maps.Copy(out, in.Facts.Capacity)
		pods := in.MaxPods
		if cores := in.Facts.Capacity.Cpu().Value(); in.PodsPerCore > 0 {
			pods = min(pods, cores*in.PodsPerCore)
		}
		out[v1.ResourcePods] = *resource.NewQuantity(pods, resource.DecimalSI)
		if !in.LocalStorage {
			delete(out, v1.ResourceEphemeralStorage)
		}
	}
	for name, q := range in.Devices.Capacity {
		out[name] = q
	}
	for _, name := range in.Devices.Gone {
		out[name] = *resource.NewQuantity(0, resource.DecimalSI)
	}
	return out
}

// Allocatable is what pods can have of a capacity. Memory that is set aside for
// huge pages is no memory for others.
func Allocatable(before, capacity v1.ResourceList, in *Inputs) v1.ResourceList {
	out := v1.ResourceList{}
	for name, q := range before {
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
	for name, q := range capacity {
		if IsHugePages(name) {
			memory.Sub(q)
		}
	}
	out[v1.ResourceMemory] = floor(memory)
	return out
}

func floor(q resource.Quantity) resource.Quantity {
	if q.Sign() < 0 {
		q.Set(0)
	}
	return q
}

// IsHugePages reports that a resource is memory in huge pages of one size.
func IsHugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// IsExtended reports that a resource is neither Kubernetes' own nor a request of
// a quota (k8s.io/kubernetes/pkg/apis/core/v1/helper, by its contract).
func IsExtended(name v1.ResourceName) bool {
	domain, _, has := strings.Cut(string(name), "/")
	return has && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io") && !strings.HasPrefix(string(name), "requests.")
}

// setMachine writes capacity, allocatable and the identity of the machine.
func setMachine(node *v1.Node, in *Inputs, seen *Seen) []Event {
	s := &node.Status
	s.Capacity = Capacity(s.Capacity, in)
	s.Allocatable = Allocatable(s.Allocatable, s.Capacity, in)
	if in.FactsErr != nil {
		return nil
	}
	info := &s.NodeInfo
	var events []Event
	if info.BootID != "" && in.Facts.BootID != "" && info.BootID != in.Facts.BootID && !seen.rebooted {
		seen.rebooted = true
		events = append(events, Event{v1.EventTypeWarning, "Rebooted", "Node " + node.Name + " has been rebooted, boot id: " + in.Facts.BootID})
	}
	info.MachineID, info.SystemUUID, info.BootID = in.Facts.MachineID, in.Facts.SystemUUID, in.Facts.BootID
	info.Swap = nil
	if swap := in.Facts.Swap; swap != 0 {
		info.Swap = &v1.NodeSwapStatus{Capacity: &swap}
	}
	return events
}

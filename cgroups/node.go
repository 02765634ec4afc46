package cgroups

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/internal/quantity"
	"github.com/nodewright/nodewright/podmeta"
)

// resourcePID is the resource name of process IDs.
const resourcePID v1.ResourceName = "pid"

// Node describes the capacity of a machine and the part of it that is reserved. It
// is configuration: nothing is measured, and a Manager does not change it.
type Node struct {
	// Capacity is the machine's whole amount of cpu, memory, hugepages-*, pid and
	// ephemeral-storage. Resources that are not named are not limited.
	Capacity v1.ResourceList
	// SystemReserved is for the system's services, KubeReserved for the agent and
	// the runtime; nil reserves nothing.
	SystemReserved, KubeReserved v1.ResourceList
	// HardEviction are the thresholds below which pods are evicted, by signal: a
	// quantity, or a percentage of the capacity. Only memory.available and
	// nodefs.available are used here; other signals are ignored.
	HardEviction map[string]string
}

// evictionResources maps the used signals to resources: the kubelet subtracts their
// thresholds from allocatable.
var evictionResources = map[string]v1.ResourceName{
	"memory.available": v1.ResourceMemory,
	"nodefs.available": v1.ResourceEphemeralStorage,
}

// ForPods returns the amount that all pods may use together: the capacity minus the
// reservations, at least zero. The eviction thresholds are not subtracted: eviction
// has to act before the kernel does.
func (n Node) ForPods() v1.ResourceList {
	out := v1.ResourceList{}
	for name, q := range n.Capacity {
		left := q.DeepCopy()
		left.Sub(n.SystemReserved[name])
		left.Sub(n.KubeReserved[name])
		out[name] = atLeastZero(left)
	}
	return out
}

// Reserved returns the amount that schedulers must not give to pods: the reservations and the
// eviction thresholds. It leaves out entries of 0 and resources without a capacity. Thresholds
// that are not quantities are ignored here; New refuses them.
func (n Node) Reserved() v1.ResourceList {
	out := v1.ResourceList{}
	for name := range n.Capacity {
		sum := n.SystemReserved[name].DeepCopy()
		sum.Add(n.KubeReserved[name])
		for signal, value := range n.HardEviction {
			if evictionResources[signal] == name {
				if q, err := threshold(value, n.Capacity[name]); err == nil {
					sum.Add(q)
				}
			}
		}
		if !sum.IsZero() {
			out[name] = sum
		}
	}
	return out
}

// Allocatable returns the allocatable amount of a node's status: the capacity minus
// Reserved, and memory minus huge pages. Devices of plugins are not included.
func (n Node) Allocatable() v1.ResourceList {
	reserved, out := n.Reserved(), v1.ResourceList{}
	for name, q := range n.Capacity {
		left := q.DeepCopy()
		left.Sub(reserved[name])
		out[name] = atLeastZero(left)
	}
	return podmeta.LeftOfMemory(out, n.Capacity)
}

// validate returns the faults of the node's amounts. Reservations of a resource
// that the machine lacks are accepted: one configuration may serve different
// machines.
func (n Node) validate() error {
	var errs []error
	// Sorted, here and below, so that the same fault gives the same text each
	// time.
	for _, signal := range slices.Sorted(maps.Keys(n.HardEviction)) {
		value := n.HardEviction[signal]
		if _, err := threshold(value, n.Capacity[evictionResources[signal]]); err != nil {
			errs = append(errs, fmt.Errorf("Config.Node.HardEviction[%s]: %w", signal, err))
		}
	}
	reserved := n.Reserved()
	for _, name := range slices.Sorted(maps.Keys(reserved)) {
		capacity := n.Capacity[name]
		if q := reserved[name]; q.Cmp(capacity) > 0 {
			errs = append(errs, fmt.Errorf("Config.Node: %s of %s is reserved; the machine has %s", q.String(), name, capacity.String()))
		}
	}
	return errors.Join(errs...)
}

// threshold parses s: a quantity, or a percentage of the capacity, which may have a
// fraction. NaN fails the comparison with 0 and is refused.
func threshold(s string, capacity resource.Quantity) (resource.Quantity, error) {
	if digits, ok := strings.CutSuffix(s, "%"); ok {
		percent, err := strconv.ParseFloat(digits, 64)
		if err != nil || !(percent >= 0 && percent <= 100) {
			return resource.Quantity{}, fmt.Errorf("%q: want 0%% to 100%%", s)
		}
		return *resource.NewQuantity(int64(float64(capacity.Value())*percent/100), resource.BinarySI), nil
	}
	q, err := quantity.Parse(s)
	if err != nil || q.Sign() < 0 {
		return resource.Quantity{}, fmt.Errorf("%q: want a quantity of 0 or more, or a percentage", s)
	}
	return q, nil
}

// atLeastZero returns q, or zero in the same format if q is negative: neither the
// kernel nor a scheduler takes negative amounts.
func atLeastZero(q resource.Quantity) resource.Quantity {
	if q.Sign() < 0 {
		return resource.Quantity{Format: q.Format}
	}
	return q
}

// OfList converts a resource list to cgroup values: cpu as a share, and memory, pid and huge
// pages as limits. Page sizes that are not in the list get the limit 0, as in pods. A nil list
// gives the zero value.
func OfList(list v1.ResourceList) Resources {
	var out Resources
	if list == nil {
		return out
	}
	if q, ok := list[v1.ResourceCPU]; ok {
		out.CPUShares = ptr(sharesOf(milli(&q)))
	}
	if q, ok := list[v1.ResourceMemory]; ok {
		out.Memory = ptr(q.Value())
	}
	if q, ok := list[resourcePID]; ok {
		out.Pids = ptr(q.Value())
	}
	if pages := hugepagesOf(list); len(pages) > 0 {
		out.Hugepages = pages
	}
	out.OtherHugepages = ptr(int64(0))
	return out
}

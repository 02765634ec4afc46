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

// resourcePID is the node's process IDs, as a resource.
const resourcePID v1.ResourceName = "pid"

// Node is what a machine has, and what of it is not for pods. It is
// configuration: nothing here is measured, and a Manager does not change it.
type Node struct {
	// Capacity is all that the machine has: cpu, memory, hugepages-*, pid and
	// ephemeral-storage, as far as it is to be divided up.
	Capacity v1.ResourceList
	// SystemReserved is for the system's services, KubeReserved for the agent and
	// the runtime; nil reserves nothing.
	SystemReserved, KubeReserved v1.ResourceList
	// HardEviction are the least amounts below which pods are evicted, by
	// signal: a quantity, or a percentage of the capacity. Of the signals
	// memory.available and nodefs.available count here. Others are accepted and
	// ignored.
	HardEviction map[string]string
}

// evictionResources are the resources of the signals that count: those whose
// thresholds the kubelet takes off what schedulers may give away.
var evictionResources = map[string]v1.ResourceName{
	"memory.available": v1.ResourceMemory,
	"nodefs.available": v1.ResourceEphemeralStorage,
}

// ForPods is what all pods may use together: the capacity without the
// reservations. The eviction thresholds are not taken off: the kernel is not
// to act before the eviction does. Nothing goes below zero.
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

// Reserved is what schedulers are not to give to pods: the reservations and
// the eviction thresholds. Entries of 0 are left out. Resources without a
// capacity are left out, and thresholds that are no quantities count as none:
// New refuses those.
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

// Allocatable is what a node reports in its status: the capacity without what
// is reserved, and memory without the huge pages. Devices of plugins are not in
// it; whoever reports the status adds them.
func (n Node) Allocatable() v1.ResourceList {
	reserved, out := n.Reserved(), v1.ResourceList{}
	for name, q := range n.Capacity {
		left := q.DeepCopy()
		left.Sub(reserved[name])
		out[name] = atLeastZero(left)
	}
	return podmeta.LeftOfMemory(out, n.Capacity)
}

// validate returns what of the node does not add up. Reservations of a resource
// that the machine does not have are no fault: one configuration may serve
// machines of several kinds.
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

// threshold returns what s stands for: a quantity, or a percentage of the
// capacity, which may have a fraction. NaN fails the comparison with 0 and is
// refused with it.
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

// atLeastZero returns q, or zero of the same format for less than that: a
// negative amount means nothing to the kernel or to a scheduler.
func atLeastZero(q resource.Quantity) resource.Quantity {
	if q.Sign() < 0 {
		return resource.Quantity{Format: q.Format}
	}
	return q
}

// OfList are the resources of a cgroup for what a list says: cpu as a share,
// memory, pid and huge pages. A nil list says nothing. Huge pages of sizes that
// it does not name get 0, as pods do: pages that were not divided up belong to
// nobody.
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

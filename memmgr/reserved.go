package memmgr

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// Reserved is the memory that is never assigned to a container, in bytes, by node ID and
// resource: for the system, the agent and the eviction threshold.
type Reserved map[int]map[Resource]uint64

// Add adds one entry of a configuration. It returns an error if the resource is neither memory
// nor huge pages, if bytes is 0, or if the node already has an entry for the resource.
func (r Reserved) Add(node int, resource Resource, bytes uint64) error {
	if !resource.known() {
		return badResource(node, resource)
	}
	if bytes == 0 {
		return zeroReserved(node, resource)
	}
	if old, ok := r[node][resource]; ok {
		return fmt.Errorf("reserved memory of node %d: %s is given twice, as %d and as %d bytes; want one entry", node, resource, old, bytes)
	}
	if r[node] == nil {
		r[node] = map[Resource]uint64{}
	}
	r[node][resource] = bytes
	return nil
}

func badResource(node int, r Resource) error {
	return fmt.Errorf("reserved memory of node %d: resource %q; want %s or %s<size>, such as %s", node, r, Memory, hugePrefix, HugePages(2<<20))
}

func zeroReserved(node int, r Resource) error {
	return fmt.Errorf("reserved memory of node %d: %s is 0 bytes; want more, or no entry", node, r)
}

// sums returns the bytes of each resource over all nodes.
func (r Reserved) sums() map[Resource]uint64 {
	sums := map[Resource]uint64{}
	for _, of := range r {
		for resource, bytes := range of {
			sums[resource] = plus(sums[resource], bytes)
		}
	}
	return sums
}

// check returns an error for every entry that m cannot have.
func (r Reserved) check(m numa.Machine) error {
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(r)) {
		node, ok := m.Node(id)
		if !ok {
			errs = append(errs, fmt.Errorf("reserved memory of node %d: the machine has nodes %s", id, m.AllNodes()))
			continue
		}
		for _, resource := range slices.SortedFunc(maps.Keys(r[id]), compareResources) {
			bytes := r[id][resource]
			switch has := capacity(node, resource); {
			case !resource.known():
				errs = append(errs, badResource(id, resource))
			case bytes == 0:
				errs = append(errs, zeroReserved(id, resource))
			case bytes > has:
				errs = append(errs, fmt.Errorf("reserved memory of node %d: %s is %d bytes; the node has %d", id, resource, bytes, has))
			}
		}
	}
	return errors.Join(errs...)
}

// ValidateReserved returns an error for everything in r that does not match the machine m or the
// sums in total. total has the reservations of the whole node for the system and the agent, plus
// the hard eviction thresholds. As in the kubelet, the sums must be equal to the byte; a missing
// entry counts as 0.
//
// [Spread] returns a valid Reserved.
func ValidateReserved(m numa.Machine, r Reserved, total map[Resource]uint64) error {
	errs := []error{r.check(m)}
	sums := r.sums()
	all := maps.Clone(sums)
	maps.Copy(all, total)
	for _, resource := range slices.SortedFunc(maps.Keys(all), compareResources) {
		if got, want := sums[resource], total[resource]; got != want {
			errs = append(errs, fmt.Errorf("reserved memory: %s is %d bytes over all nodes; want %d, the node's reservation", resource, got, want))
		}
	}
	return errors.Join(errs...)
}

// Spread distributes the reservation of the whole node over m's nodes, in proportion to their
// memory and in whole pages. It is for configurations without a list by node. Memory is taken
// from the nodes with CPUs, where the system runs; from others only if those have too little. It
// returns an error if m has too little of a resource.
func Spread(m numa.Machine, total map[Resource]uint64) (Reserved, error) {
	r := Reserved{}
	var errs []error
	for _, resource := range slices.SortedFunc(maps.Keys(total), compareResources) {
		want := total[resource]
		if want == 0 {
			continue
		}
		page, huge := resource.PageSize()
		if !huge {
			page = 4 << 10
		}
		nodes, sum := holders(m.Nodes, resource)
		if near, has := holders(withCPUs(m), resource); !huge && has >= want {
			nodes, sum = near, has
		}
		if sum < want {
			errs = append(errs, fmt.Errorf("reserved memory: %s is %d bytes; the machine has %d", resource, want, sum))
			continue
		}
		share := make([]uint64, len(nodes))
		left := want
		for i, n := range nodes {
			high, low := bits.Mul64(want, capacity(n, resource))
			share[i], _ = bits.Div64(high, low, sum)
			share[i] -= share[i] % page
			left -= share[i]
		}
		for i, n := range nodes {
			more := min(left, capacity(n, resource)-share[i])
			left -= more
			if share[i]+more > 0 {
				errs = append(errs, r.Add(n.ID, resource, share[i]+more))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return r, nil
}

func withCPUs(m numa.Machine) []numa.Node {
	var nodes []numa.Node
	for _, n := range m.Nodes {
		if slices.ContainsFunc(m.CPUs, func(c numa.CPU) bool { return c.Node == n.ID }) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// holders returns the nodes that have any of a resource, and their total amount.
func holders(nodes []numa.Node, r Resource) (list []numa.Node, sum uint64) {
	for _, n := range nodes {
		if bytes := capacity(n, r); bytes > 0 {
			list = append(list, n)
			sum = plus(sum, bytes)
		}
	}
	return list, sum
}

// capacity returns the amount of a resource that a node has. For memory, huge pages do not count.
func capacity(n numa.Node, r Resource) uint64 {
	if size, huge := r.PageSize(); huge {
		return times(n.HugePages[size], size)
	}
	if r != Memory {
		return 0
	}
	left := n.Memory
	for size, pages := range n.HugePages {
		left = minus(left, times(pages, size))
	}
	return left
}

func times(a, b uint64) uint64 {
	if high, low := bits.Mul64(a, b); high == 0 {
		return low
	}
	return 1<<64 - 1
}

package fit

import (
	"fmt"
	"maps"
	"slices"

	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/topology"
)

// NoNUMANode stands for the NUMA node of devices that have none.
const NoNUMANode = -1

// DeviceCount has the number of healthy devices of a resource on a NUMA node, and how many of
// them are not allocated.
type DeviceCount struct{ Total, Free int }

// Devices has the numbers of devices by the name of the extended resource and by NUMA node, or
// [NoNUMANode]. It is for programs that know only these numbers, as schedulers do. An agent uses
// its device manager, which knows each device.
//
// A Devices must not be modified.
type Devices map[string]map[int]DeviceCount

// Provider returns the devices that a pod can take on a machine. A container takes devices
// near the NUMA nodes of its hint first. As in the kubelet, containers may reuse the devices of
// init containers before them. Resources that d does not have are ignored.
func (d Devices) Provider(m numa.Machine, pod numa.Pod) topology.Provider {
	return devices{all: d, candidates: numa.Candidates(m), pod: pod}
}

// devices has the devices that a pod can take, and those that it has taken so far. It is a value,
// as topology expects of providers: Allocate returns another one, so that a failed attempt leaves
// nothing behind.
type devices struct {
	all        Devices
	candidates []numa.NodeSet
	pod        numa.Pod
	// given and spare have numbers by resource and NUMA node. Allocate modifies copies of them.
	given map[string]map[int]int // number of devices that this pod has taken
	spare map[string]map[int]int // number of the given devices that the next container may reuse
}

// Hints implements topology.Provider. Resources are sorted, so that equal calls give equal
// answers.
func (d devices) Hints(container int) []numa.Hints {
	wants := d.wants(container)
	out := make([]numa.Hints, 0, len(wants))
	for _, name := range slices.Sorted(maps.Keys(wants)) {
		out = append(out, d.hints(name, wants[name]))
	}
	return out
}

// wants returns the numbers of devices that a container requests, by resource. For the whole pod,
// it returns the largest numbers that its containers use at the same time.
func (d devices) wants(container int) map[string]int {
	wants := map[string]int{}
	if container != topology.WholePod {
		for name, n := range d.pod.Containers[container].Extended {
			if d.all[name] != nil && n > 0 {
				wants[name] = n
			}
		}
		return wants
	}
	// Init containers return their devices before the next container starts. Sidecars and regular
	// containers keep theirs.
	staying := map[string]int{}
	for _, c := range d.pod.Containers { // init containers and sidecars come first
		for name, n := range c.Extended {
			switch {
			case d.all[name] == nil || n <= 0:
			case c.Kind == numa.Init:
				wants[name] = max(wants[name], staying[name]+n)
			default:
				staying[name] += n
			}
		}
	}
	for name, n := range staying {
		wants[name] = max(wants[name], n)
	}
	return wants
}

// free returns the number of devices of a resource that the pod can still take on a node.
func (d devices) free(name string, node int) int {
	return d.all[name][node].Free - d.given[name][node] + d.spare[name][node]
}

// hints returns the sets of nodes with enough free devices of a resource. A set is preferred if
// it has as few nodes as an idle machine would need, so on a busy machine there may be no
// preferred one.
func (d devices) hints(name string, count int) numa.Hints {
	h := numa.Hints{Resource: name}
	nodes := d.all[name]
	// Devices without a NUMA node are equally near to all nodes.
	if !slices.ContainsFunc(slices.Collect(maps.Keys(nodes)), func(n int) bool { return n != NoNUMANode }) {
		h.Any = true
		return h
	}
	least := 0 // the fewest nodes with enough devices, allocated ones included
	for _, set := range d.candidates {
		total, free := 0, 0
		for node, c := range nodes {
			if node != NoNUMANode && set.Has(node) {
				total += c.Total
				free += d.free(name, node)
			}
		}
		if total >= count && (least == 0 || set.Len() < least) {
			least = set.Len()
		}
		if free >= count {
			h.List = append(h.List, numa.Hint{Nodes: set})
		}
	}
	for i := range h.List {
		h.List[i].Preferred = h.List[i].Nodes.Len() == least
	}
	return h
}

// Allocate implements topology.Provider. Devices that an init container of the pod had are used
// first, since they cost the node nothing.
func (d devices) Allocate(container int, hint numa.Hint) (topology.Provider, error) {
	wants := d.wants(container)
	// d is a copy, but its maps are shared with the previous provider.
	d.given, d.spare = clone(d.given), clone(d.spare)
	isInit := container != topology.WholePod && d.pod.Containers[container].Kind == numa.Init
	for _, name := range slices.Sorted(maps.Keys(wants)) {
		left := wants[name]
		order := slices.Sorted(maps.Keys(d.all[name]))
		// Among nodes that are equally near the lowest number comes first.
		slices.SortStableFunc(order, func(a, b int) int { return nearness(hint, a) - nearness(hint, b) })
		for _, node := range order {
			n := min(left, d.free(name, node))
			if n <= 0 {
				continue
			}
			reused := min(n, d.spare[name][node])
			add(d.spare, name, node, -reused)
			add(d.given, name, node, n-reused)
			if isInit {
				add(d.spare, name, node, n)
			}
			left -= n
		}
		if left > 0 {
			return nil, fmt.Errorf("%s: %d devices requested, %d free", name, wants[name], wants[name]-left)
		}
	}
	return d, nil
}

// left returns the devices without those that the pod has taken. Spare devices still belong
// to the pod.
func (d devices) left() Devices { return d.all.less(d.given, 1) }

// less returns d with fewer free devices: it subtracts each number in given, multiplied by times.
func (d Devices) less(given map[string]map[int]int, times int) Devices {
	out := maps.Clone(d)
	for name, nodes := range given {
		out[name] = maps.Clone(out[name])
		for node, n := range nodes {
			c := out[name][node]
			c.Free -= times * n
			out[name][node] = c
		}
	}
	return out
}

// nearness ranks a NUMA node for a hint: 0 for a node of the hint, 1 for devices without a node,
// 2 for other nodes. Devices of a lower rank are taken first.
func nearness(hint numa.Hint, node int) int {
	switch {
	case node == NoNUMANode:
		return 1
	case hint.Nodes == 0 || hint.Nodes.Has(node):
		return 0
	}
	return 2
}

// clone copies both levels, since add changes the inner one.
func clone(m map[string]map[int]int) map[string]map[int]int {
	out := make(map[string]map[int]int, len(m))
	for name, nodes := range m {
		out[name] = maps.Clone(nodes)
	}
	return out
}

// add adds n to a node's number of a resource. It creates missing maps.
func add(m map[string]map[int]int, name string, node, n int) {
	if m[name] == nil {
		m[name] = map[int]int{}
	}
	m[name][node] += n
}

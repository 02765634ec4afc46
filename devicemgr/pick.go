package devicemgr

import (
	"cmp"
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// want is a request for devices of one resource, with all values that affect the choice, so that
// pick can be tested without plugins.
type want struct {
	resource string
	count    int
	devices  []Device             // all devices of the resource, sorted
	taken    func(id string) bool // whether a device is in use; devices in reusable count as free
	reusable []string             // devices of the pod's init containers that end before
	hint     numa.NodeSet         // preferred NUMA nodes; 0 means any
	// prefer returns the size devices that the plugin prefers among the available ones. They must
	// include those in must. If prefer is nil, the plugin has no preference.
	prefer func(available, must []string, size int) ([]string, error)
}

// pick chooses the devices. It reads only w, and calls w.prefer at most once. It takes, in this
// order: reusable devices of init containers, devices near the hint, devices that the plugin
// prefers, devices near other nodes, devices near no node. The order of these groups is the
// kubelet's. Each group is sorted by ID, so that the result is deterministic; in the kubelet the
// order within a group is random.
func pick(w want) ([]string, error) {
	var got []string
	chosen := map[string]bool{}
	// take adds devices until there are enough. It skips devices that were already chosen, so the
	// lists below may overlap.
	take := func(ids []string) {
		for _, id := range ids {
			if len(got) < w.count && !chosen[id] {
				chosen[id] = true
				got = append(got, id)
			}
		}
	}
	defer func() { slices.Sort(got) }()
	// An unhealthy device is never chosen, even if an init container has it.
	var free []Device
	for _, d := range w.devices {
		switch {
		case !d.Healthy:
		case slices.Contains(w.reusable, d.ID):
			take([]string{d.ID})
		case !w.taken(d.ID):
			free = append(free, d)
		}
	}
	if len(got)+len(free) < w.count {
		return nil, &InsufficientError{Resource: w.resource, Requested: w.count, Available: len(got) + len(free)}
	}
	// ask calls the plugin. It ignores IDs that were not offered, so that a plugin can choose
	// neither other devices nor more than requested.
	ask := func(available []string) ([]string, error) {
		if w.prefer == nil || len(got) == w.count {
			return nil, nil
		}
		// A copy, since the plugin may keep the list.
		must := slices.Clone(got)
		slices.Sort(must)
		all := append(slices.Clone(must), available...)
		slices.Sort(all)
		wish, err := w.prefer(slices.Compact(all), must, w.count)
		offered := make(map[string]bool, len(available))
		for _, id := range available {
			offered[id] = true
		}
		return slices.DeleteFunc(wish, func(id string) bool { return !offered[id] }), err
	}
	// If enough devices are near the hint, the plugin chooses among them. Otherwise all of them
	// are taken, and the plugin chooses the rest.
	near, far, nowhere := split(free, w.hint)
	offered := near
	if w.count-len(got) >= len(near) {
		take(near)
		offered = slices.Concat(near, far, nowhere)
	}
	wish, err := ask(offered)
	if err != nil {
		return nil, err
	}
	// The plugin may have returned fewer devices; others follow in the fixed order.
	take(wish)
	take(near)
	take(far)
	take(nowhere)
	return got, nil
}

// split divides free devices into those near a NUMA node of the hint (near), those near other nodes
// only (far), and those near no node (nowhere). Each device is in one list. A device near several
// nodes counts for one of them: one of the hint's if possible, then the one with the fewest free
// devices. That keeps nodes with many free devices for larger requests. Without a hint, all devices
// are in nowhere.
func split(free []Device, hint numa.NodeSet) (near, far, nowhere []string) {
	perNode := map[int][]string{}
	for _, d := range free {
		if d.Nodes == 0 || hint == 0 {
			nowhere = append(nowhere, d.ID)
			continue
		}
		for id := range d.Nodes.All() {
			perNode[id] = append(perNode[id], d.ID)
		}
	}
	nodes := make([]int, 0, len(perNode))
	for id := range perNode {
		nodes = append(nodes, id)
	}
	outside := func(id int) int {
		if hint.Has(id) {
			return 0
		}
		return 1
	}
	slices.SortFunc(nodes, func(a, b int) int {
		return cmp.Or(cmp.Compare(outside(a), outside(b)), cmp.Compare(len(perNode[a]), len(perNode[b])), cmp.Compare(a, b))
	})
	// A device near several nodes is in the list of each.
	seen := map[string]bool{}
	for _, node := range nodes {
		for _, id := range perNode[node] {
			if seen[id] {
				continue
			}
			seen[id] = true
			if hint.Has(node) {
				near = append(near, id)
			} else {
				far = append(far, id)
			}
		}
	}
	return near, far, nowhere
}

package devicemgr

import (
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// question is a request for n devices of a resource, for which hints returns the
// possible NUMA nodes to package topology.
type question struct {
	resource string
	devices  []Device             // all there are, sorted
	free     func(id string) bool // whether a device is free; those in must count as free
	must     []string             // devices that must be among them
	n        int
}

// hints returns the sets of nodes that can serve the request. Those are preferred
// that have as few nodes as an idle machine needs, as in the kubelet. On machines
// of up to 8 nodes only nodes with devices are considered; on larger ones,
// numa.Candidates. Any means that the resource has no preference; an empty list
// means that no set can serve it. It does not modify the question.
func (q question) hints(m numa.Machine) numa.Hints {
	h := numa.Hints{Resource: q.resource}
	if !anyNear(q.devices) || len(m.Nodes) == 0 {
		h.Any = true
		return h
	}
	// Devices of the same nodes are alike: only their number matters. A machine may
	// list thousands of devices, and the loop over candidates below runs 255 times
	// on 8 nodes.
	type count struct{ installed, free int }
	kinds := map[numa.NodeSet]*count{}
	var with, must numa.NodeSet
	var musts []numa.NodeSet
	free := 0
	for _, d := range q.devices {
		forced := slices.Contains(q.must, d.ID)
		usable := forced || q.free(d.ID)
		if usable {
			free++
		}
		// A device without nodes counts as available, but matches no set of nodes, as
		// in the kubelet.
		if d.Nodes == 0 {
			continue
		}
		with |= d.Nodes
		k := kinds[d.Nodes]
		if k == nil {
			k = &count{}
			kinds[d.Nodes] = k
		}
		k.installed++
		if usable {
			k.free++
		}
		// Only nodes that add a condition are kept: a few forced devices on the
		// same nodes are one test.
		if forced && !d.Nodes.SubsetOf(must) {
			must |= d.Nodes
			musts = append(musts, d.Nodes)
		}
	}
	if free < q.n {
		return h
	}
	all := m.AllNodes()
	// Plugins may name nodes that the machine does not have. They are ignored; a
	// device without others has no node.
	if with &= all; with == 0 {
		with = all
	}
	// The preference is measured against all installed devices, not the free ones:
	// a pod on a busy machine gets a hint that is not preferred, rather than a
	// promise that it is the best.
	fewest := all.Len()
	type found struct {
		nodes numa.NodeSet
		free  int
	}
	var candidates []found
	for _, nodes := range numa.Candidates(m) {
		if all.Len() <= maxAllSubsets && !nodes.SubsetOf(with) {
			continue
		}
		var sum count
		for near, k := range kinds {
			if near&nodes != 0 {
				sum.installed += k.installed
				sum.free += k.free
			}
		}
		if sum.installed >= q.n {
			fewest = min(fewest, nodes.Len())
		}
		// Devices that the pod reuses cannot be left behind on another node.
		outside := slices.ContainsFunc(musts, func(near numa.NodeSet) bool { return near&nodes == 0 })
		if sum.free >= q.n && !outside {
			candidates = append(candidates, found{nodes, sum.free})
		}
	}
	// fewest is final only now. Candidates are in a fixed order, and so are hints.
	for _, c := range candidates {
		h.List = append(h.List, numa.Hint{Nodes: c.nodes, Preferred: c.nodes.Len() == fewest})
	}
	return h
}

// maxAllSubsets is the number of nodes up to which numa.Candidates has every set of
// them. It is the kubelet's limit of NUMA nodes for its topology manager.
const maxAllSubsets = 8

package devicemgr

import (
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// question asks from which nodes n devices of a resource can be had.
type question struct {
	resource string
	devices  []Device             // all there are, sorted
	free     func(id string) bool // may be taken; those in must are too
	must     []string             // devices that will be among them
	n        int
}

// hints answers. Those preferred have as few nodes as would do if every device
// were free, as in the kubelet. On machines of up to 8 nodes only nodes with
// devices are looked at; on larger ones, whatever numa.Candidates has.
func (q question) hints(m numa.Machine) numa.Hints {
	h := numa.Hints{Resource: q.resource}
	if !anyNear(q.devices) || len(m.Nodes) == 0 {
		h.Any = true
		return h
	}
	// Devices of the same nodes are alike: only their number matters.
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
		if forced && !d.Nodes.SubsetOf(must) {
			must |= d.Nodes
			musts = append(musts, d.Nodes)
		}
	}
	if free < q.n {
		return h
	}
	all := m.AllNodes()
	if with &= all; with == 0 {
		with = all
	}
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
		outside := slices.ContainsFunc(musts, func(near numa.NodeSet) bool { return near&nodes == 0 })
		if sum.free >= q.n && !outside {
			candidates = append(candidates, found{nodes, sum.free})
		}
	}
	for _, c := range candidates {
		h.List = append(h.List, numa.Hint{Nodes: c.nodes, Preferred: c.nodes.Len() == fewest})
	}
	return h
}

// maxAllSubsets is the number of nodes up to which numa.Candidates has every
// set of them.
const maxAllSubsets = 8

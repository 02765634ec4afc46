package devicemgr

import (
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// question is a request for n devices of a resource. hints answers it for package topology.
type question struct {
	resource string
	devices  []Device             // all devices of the resource, sorted
	free     func(id string) bool // whether a device is free; devices in must count as free
	must     []string             // devices that must be included
	n        int
}

// hints returns the sets of nodes that can serve the request. As in the kubelet, a set is
// preferred if it has as few nodes as an idle machine needs. On machines of up to 8 nodes only
// sets of nodes with devices are considered; on larger ones, the sets of numa.Candidates. The
// result Any means that the resource has no preference. An empty list means that no set can serve
// the request. The question is not modified.
func (q question) hints(m numa.Machine) numa.Hints {
	h := numa.Hints{Resource: q.resource}
	if !anyNear(q.devices) || len(m.Nodes) == 0 {
		h.Any = true
		return h
	}
	s := q.supply()
	if s.free < q.n {
		return h
	}
	all := m.AllNodes()
	// Nodes that the machine does not have are ignored. A device with no other node has none.
	with := s.nodes & all
	if with == 0 {
		with = all
	}
	// The preference is compared with all installed devices, not only the free ones: on a busy
	// machine a pod gets a hint that is not preferred.
	fewest := all.Len()
	var candidates []numa.NodeSet
	for _, nodes := range numa.Candidates(m) {
		if all.Len() <= maxAllSubsets && !nodes.SubsetOf(with) {
			continue
		}
		sum := s.near(nodes)
		if sum.installed >= q.n {
			fewest = min(fewest, nodes.Len())
		}
		// Devices that the pod reuses must be within the set.
		outside := slices.ContainsFunc(s.musts, func(near numa.NodeSet) bool { return near&nodes == 0 })
		if sum.free >= q.n && !outside {
			candidates = append(candidates, nodes)
		}
	}
	// fewest is known only after the loop. Candidates, and therefore hints, have a fixed order.
	for _, nodes := range candidates {
		h.List = append(h.List, numa.Hint{Nodes: nodes, Preferred: nodes.Len() == fewest})
	}
	return h
}

// supply counts the devices of a question by the nodes that they are near.
type supply struct {
	// kinds has the devices with nodes. Devices with the same nodes are equal here, so they are
	// counted: a machine may list thousands of devices, and hints looks at 255 sets on 8 nodes.
	kinds map[numa.NodeSet]*deviceCount
	nodes numa.NodeSet   // nodes with devices
	musts []numa.NodeSet // nodes of the devices that have to be used
	free  int            // devices that may be used, including those without nodes
}

type deviceCount struct{ installed, free int }

func (q question) supply() supply {
	s := supply{kinds: map[numa.NodeSet]*deviceCount{}}
	var must numa.NodeSet
	for _, d := range q.devices {
		forced := slices.Contains(q.must, d.ID)
		usable := forced || q.free(d.ID)
		if usable {
			s.free++
		}
		// As in the kubelet, a device without nodes counts as available but is in no set of
		// nodes.
		if d.Nodes == 0 {
			continue
		}
		s.nodes |= d.Nodes
		k := s.kinds[d.Nodes]
		if k == nil {
			k = &deviceCount{}
			s.kinds[d.Nodes] = k
		}
		k.installed++
		if usable {
			k.free++
		}
		// Only distinct nodes are kept, so that forced devices on the same nodes are checked
		// once.
		if forced && !d.Nodes.SubsetOf(must) {
			must |= d.Nodes
			s.musts = append(s.musts, d.Nodes)
		}
	}
	return s
}

// near counts the devices that are near one of the nodes.
func (s *supply) near(nodes numa.NodeSet) (sum deviceCount) {
	for near, k := range s.kinds {
		if near&nodes != 0 {
			sum.installed += k.installed
			sum.free += k.free
		}
	}
	return sum
}

// maxAllSubsets is the number of nodes up to which numa.Candidates returns every set. It is the
// kubelet's limit for its topology manager.
const maxAllSubsets = 8

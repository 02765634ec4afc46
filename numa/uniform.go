package numa

// Uniform returns a machine of equal parts with the usual numbering of Linux: nodes and CPUs
// ascend from socket to socket, and the second threads of all cores follow all first threads.
// With n cores in total, the CPUs i and i+n are threads of the same core. The CPUs of a node
// share their last-level cache. Distances are 10 within a node, 12 within a socket and 32 beyond
// it, as on two-socket AMD EPYC machines. Memory is in bytes for each node.
//
// Counts are at least 1, with at most [MaxNodes] nodes and [MaxCPUs] CPUs;
// [Machine.Validate] rejects machines with other numbers.
func Uniform(sockets, nodesPerSocket, coresPerNode, threads int, memoryPerNode uint64) Machine {
	nodes := sockets * nodesPerSocket
	cores := nodes * coresPerNode
	var m Machine
	for thread := range threads {
		for core := range cores {
			node := core / coresPerNode
			m.CPUs = append(m.CPUs, CPU{
				ID:     thread*cores + core,
				Core:   core,
				Cache:  node * coresPerNode,
				Socket: node / nodesPerSocket,
				Node:   node,
			})
		}
	}
	for node := range nodes {
		n := Node{ID: node, Memory: memoryPerNode}
		for other := range nodes {
			switch {
			case other == node:
				n.Distances = append(n.Distances, 10)
			case other/nodesPerSocket == node/nodesPerSocket:
				n.Distances = append(n.Distances, 12)
			default:
				n.Distances = append(n.Distances, 32)
			}
		}
		m.Nodes = append(m.Nodes, n)
	}
	return m
}

package numa

// Hint is a set of NUMA nodes that can serve a request.
type Hint struct {
	// Nodes are the nodes; 0 means any.
	Nodes NodeSet
	// Preferred reports that no smaller set of nodes could serve the request, even if all nodes
	// were idle.
	Preferred bool
}

// Hints are the hints of one resource for one request.
type Hints struct {
	// Resource is the name, such as "cpu", "memory" or "example.com/gpu".
	Resource string
	// Any reports that the resource has no preference; List is ignored then.
	// Otherwise an empty List means that the request cannot be served.
	Any  bool
	List []Hint
}

package numa

// Hint says that a request can be served from some NUMA nodes.
type Hint struct {
	// Nodes are the nodes; 0 means any.
	Nodes NodeSet
	// Preferred reports that fewer nodes of this machine could not serve the
	// request, even if they were idle.
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

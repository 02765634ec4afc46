package numa

// Hint is a set of NUMA nodes that can serve a request.
type Hint struct {
	// Nodes are the nodes of the hint. The empty set (0) means that any nodes can serve the
	// request.
	Nodes NodeSet
	// Preferred reports that no smaller set of nodes could serve the request, even on an idle
	// machine.
	Preferred bool
}

// Hints are the hints of one resource for one request.
type Hints struct {
	// Resource is the name, such as "cpu", "memory" or "example.com/gpu".
	Resource string
	// Any reports that the resource prefers no node; List is then ignored. If Any is false, an
	// empty List means that the request cannot be served.
	Any  bool
	List []Hint
}

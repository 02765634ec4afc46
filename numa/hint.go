package numa

// Hint says that a request can be served from some NUMA nodes.
type Hint struct {
	// Nodes are the nodes; 0 means any.
	Nodes NodeSet
	// Preferred reports that it cannot be served from fewer nodes of this
	// machine.
	Preferred bool
}

// Hints is what one resource says of one request.
type Hints struct {
	// Resource names it, such as "cpu", "memory" or "example.com/gpu".
	Resource string
	// Any reports that it has no preference. List is not looked at then;
	// otherwise an empty List means that the request cannot be served.
	Any  bool
	List []Hint
}

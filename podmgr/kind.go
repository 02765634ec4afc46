package podmgr

import "github.com/nodewright/nodewright/podmeta"

// Kind says who owns the pods of a source: the node (Static), another program (Managed), or
// an API server (API).
type Kind int

const (
	// Static pods are owned by this node, like those of manifests: they end when
	// their source drops them, and start anew when it names them again. Their
	// statuses are published as long as the source names them.
	Static Kind = iota
	// Managed pods are owned by another program, which follows their statuses: each
	// ends once, by a DeletionTimestamp or because its source drops it. The sink
	// then gets its last status and after that its deletion. The sink gets
	// nothing for a pod that its source dropped while no agent ran.
	Managed
	// API pods are Managed by an API server, which has set their defaults and
	// validated them. A pod that the source drops is already deleted there.
	API
)

// Kinder is a Source that states the Kind of its pods. The pods of any other Source are
// Static, or API if it is named podmeta.SourceAPI.
type Kinder interface {
	// Kind returns the same Kind for the life of the Source.
	Kind() Kind
}

// KindOf returns the Kind of the pods of a source.
func KindOf(s Source) Kind {
	if k, ok := s.(Kinder); ok {
		return k.Kind()
	}
	if s.Name() == podmeta.SourceAPI {
		return API
	}
	return Static
}

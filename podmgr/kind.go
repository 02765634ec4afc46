package podmgr

import "github.com/nodewright/nodewright/podmeta"

// Kind is what the pods of a source are.
type Kind int

const (
	// Static pods are this node's alone, like those of manifests: they end when
	// their source does not name them any more, and begin anew when it does
	// again. A sink hears of them as long as they are wanted.
	Static Kind = iota
	// Managed pods are somebody else's, who follows what becomes of them: each
	// comes to its end once, by a DeletionTimestamp or by not being named any
	// more, and the sink hears of its last status and then of its deletion. The sink
	// is not told of a pod that its source stopped naming while no agent ran.
	Managed
	// API pods are Managed by an API server, which has given them defaults and
	// validated them. One that is not named any more is gone there already.
	API
)

// Kinder is a Source that says of which Kind its pods are. Those of any other
// Source are Static, but for one that is named podmeta.SourceAPI.
type Kinder interface {
	// Kind never changes.
	Kind() Kind
}

// KindOf returns of which Kind the pods of a source are.
func KindOf(s Source) Kind {
	if k, ok := s.(Kinder); ok {
		return k.Kind()
	}
	if s.Name() == podmeta.SourceAPI {
		return API
	}
	return Static
}

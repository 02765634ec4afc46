package observed

import (
	"cmp"
	"strings"
	"time"
)

// Instance has the values by which the instances of a pod's sandbox, or of one of its containers,
// are sorted.
type Instance struct {
	Attempt   uint32
	Running   bool // for a sandbox: ready
	CreatedAt time.Time
	ID        string
}

// NewestFirst compares two instances, for slices.SortFunc. The instance with the higher attempt
// comes first, so that a clock that was set back has no effect. If the attempts are equal, as
// with a runtime that does not report them, a running instance comes first, and then the one that
// was created later.
func NewestFirst(a, b Instance) int {
	running := 0
	switch {
	case a.Running == b.Running:
	case a.Running:
		running = -1
	default:
		running = 1
	}
	return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), running, b.CreatedAt.Compare(a.CreatedAt), strings.Compare(a.ID, b.ID))
}

package observed

import (
	"cmp"
	"strings"
	"time"
)

// Instance is what orders the instances of one sandbox of a pod, or of one of its
// containers.
type Instance struct {
	Attempt   uint32
	Running   bool // or ready, of a sandbox
	CreatedAt time.Time
	ID        string
}

// NewestFirst compares two instances, for slices.SortFunc: the later attempt comes
// first. A clock that was set back between two of them makes no older one of the
// newer. Where a runtime shows no attempts, one that runs comes first, then the one
// made later.
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

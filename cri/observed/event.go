package observed

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// ErrNoEventStream means that a runtime has no event stream at all, so that
// trying again is of no use.
var ErrNoEventStream = errors.New("the container runtime has no event stream")

// EventKind describes what happened to a container or a sandbox.
type EventKind uint8

// The kinds of the CRI's ContainerEventType, and one more.
const (
	ContainerCreated EventKind = iota
	ContainerStarted
	ContainerStopped
	ContainerDeleted
	// ContainerChanged asks for a look at a container, whatever its state was
	// when it was seen last. The CRI has no such event; it is for runtimes
	// whose containers change in other ways, such as machines that start again
	// under the same ID.
	ContainerChanged
)

// String returns the kind as the CRI names it, in lower case.
func (k EventKind) String() string {
	names := [...]string{"created", "started", "stopped", "deleted", "changed"}
	if int(k) >= len(names) {
		return "unknown"
	}
	return names[k]
}

// Event is a runtime's word that something happened to a pod. It is a hint to
// look, not a state: events can be lost, late or doubled.
type Event struct {
	UID types.UID
	// ID is the container's, or the sandbox's.
	ID   string
	Kind EventKind
	// At is the runtime's wall clock.
	At time.Time
}

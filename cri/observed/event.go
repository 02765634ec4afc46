package observed

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// ErrNoEventStream means that a runtime has no event stream, so that further tries would fail too.
var ErrNoEventStream = errors.New("the container runtime has no event stream")

// EventKind describes what happened to a container or a sandbox.
type EventKind uint8

// The kinds of the CRI's ContainerEventType, and one more.
const (
	ContainerCreated EventKind = iota
	ContainerStarted
	ContainerStopped
	ContainerDeleted
	// ContainerChanged means that a container has to be inspected, whatever its last observed state
	// was. The CRI has no such event. It is for runtimes whose containers change in other ways, such
	// as virtual machines that start again under the same ID.
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

// Event is a runtime's report that something happened to a pod. It only says that the pod should
// be inspected. It does not have the state, since events can be lost, late or duplicated.
type Event struct {
	UID types.UID
	// ID is the ID of the container or sandbox.
	ID   string
	Kind EventKind
	// At is the time of the event by the runtime's wall clock.
	At time.Time
}

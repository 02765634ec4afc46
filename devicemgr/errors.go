package devicemgr

import (
	"errors"
	"fmt"
	"time"
)

// Errors that callers act on. Those that mean "wait" and those that mean "reject"
// are different types, so that a caller needs no text. The words of
// InsufficientError are the kubelet's, which tools look for.

// ErrChanged means that devices an [Admission] chose were taken, or became
// unhealthy, before it was committed. Begin again.
var ErrChanged = errors.New("devices changed while the pod was admitted")

// ErrNotRunning is for plugins that come before [Manager.Run], or after it.
var ErrNotRunning = errors.New("the device manager is not running")

// ErrAway is for a [Plugin] that has gone away in the middle of a call: the pod
// that it was for waits once for it to come back.
var ErrAway = errors.New("the plugin has gone away")

// NotYetError means that a pod asks for devices that may come: it should wait
// and be admitted again when [Manager.Subscribe] reports the resource, or at
// Until, when the answer will be another.
type NotYetError struct {
	Resource string
	// Why says, for people, what the pod waits for.
	Why string
	// Until is when the answer becomes another even if no plugin comes: GoneError
	// as a rule.
	Until time.Time
}

func (e *NotYetError) Error() string {
	return fmt.Sprintf("waiting for devices of %s until %s: %s", e.Resource, e.Until.Format(time.TimeOnly), e.Why)
}

// InsufficientError means that there are too few healthy and free devices.
// Available counts those that init containers leave to the container. The pod is
// rejected, as in the kubelet.
type InsufficientError struct {
	Resource             string
	Requested, Available int
}

func (e *InsufficientError) Error() string {
	return fmt.Sprintf("requested number of devices unavailable for %s. Requested: %d, Available: %d", e.Resource, e.Requested, e.Available)
}

// GoneError means that nobody offers devices of a resource (any more). It follows a
// NotYetError whose time is over.
type GoneError struct {
	Resource, Why string
}

func (e *GoneError) Error() string {
	return fmt.Sprintf("no healthy devices of %s: %s", e.Resource, e.Why)
}

// RequestError means that a container asks for another number of devices than it
// has. A number that changes means that the pod's spec did, which the API server
// does not allow for devices.
type RequestError struct {
	Container, Resource string
	Requested, Has      int
}

func (e *RequestError) Error() string {
	return fmt.Sprintf("container %s asks for %d devices of %s and has %d: the number cannot change", e.Container, e.Requested, e.Resource, e.Has)
}

// CallPreStart is the name of [Plugin.PreStart] in the device plugin API.
const CallPreStart = "PreStartContainer"

// PluginError means that a plugin answered a call with an error, or not in time.
// The pod is rejected. Err is what the plugin said, cut to maxText bytes.
type PluginError struct {
	Resource string
	Call     string // as the device plugin API names it, such as CallPreStart
	Err      error
}

func (e *PluginError) Error() string {
	return fmt.Sprintf("plugin of %s: %s: %v", e.Resource, e.Call, e.Err)
}

// Unwrap is what the plugin, or the connection to it, said.
func (e *PluginError) Unwrap() error { return e.Err }

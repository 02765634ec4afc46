package devicemgr

import (
	"errors"
	"fmt"
	"time"
)

// Errors that mean "wait" or "reject" have different types, so that callers need not compare
// texts. The text of InsufficientError is the kubelet's, since tools search for it.

// ErrChanged means that devices chosen by an [Admission] were allocated or became
// unhealthy before Commit. Call Begin again.
var ErrChanged = errors.New("devices changed while the pod was admitted")

// ErrNotRunning is returned to plugins that register before [Manager.Run] or after
// its end.
var ErrNotRunning = errors.New("the device manager is not running")

// ErrAway is the error of a [Plugin] that went away during a call. The pod waits once for it to
// return.
var ErrAway = errors.New("the plugin has gone away")

// NotYetError means that the requested devices may become available: admit the pod
// again when [Manager.Subscribe] reports the resource, or at Until.
type NotYetError struct {
	Resource string
	// Why says for people why the pod waits.
	Why string
	// Until is the time at which the result changes even without the plugin, usually to a
	// GoneError.
	Until time.Time
}

func (e *NotYetError) Error() string {
	return fmt.Sprintf("waiting for devices of %s until %s: %s", e.Resource, e.Until.Format(time.TimeOnly), e.Why)
}

// InsufficientError means that too few devices are healthy and free. Available includes those
// that init containers leave to the container. The pod is rejected, as in the kubelet.
type InsufficientError struct {
	Resource             string
	Requested, Available int
}

func (e *InsufficientError) Error() string {
	return fmt.Sprintf("requested number of devices unavailable for %s. Requested: %d, Available: %d", e.Resource, e.Requested, e.Available)
}

// GoneError means that no plugin offers the resource, and that the waiting time of a NotYetError
// has passed.
type GoneError struct {
	Resource, Why string
}

func (e *GoneError) Error() string {
	return fmt.Sprintf("no healthy devices of %s: %s", e.Resource, e.Why)
}

// RequestError means that a container requests a different number of devices than it has. This
// happens only if the pod's spec has changed, which the API server does not allow for devices.
type RequestError struct {
	Container, Resource string
	Requested, Has      int
}

func (e *RequestError) Error() string {
	return fmt.Sprintf("container %s asks for %d devices of %s and has %d: the number cannot change", e.Container, e.Requested, e.Resource, e.Has)
}

// CallPreStart is the name of [Plugin.PreStart] in the device plugin API.
const CallPreStart = "PreStartContainer"

// PluginError means that a plugin returned an error or did not return in time. The
// pod is rejected. Err is the plugin's error, cut to 1 KiB.
type PluginError struct {
	Resource string
	Call     string // name in the device plugin API, such as CallPreStart
	Err      error
}

func (e *PluginError) Error() string {
	return fmt.Sprintf("plugin of %s: %s: %v", e.Resource, e.Call, e.Err)
}

// Unwrap returns the error of the plugin or of the connection to it.
func (e *PluginError) Unwrap() error { return e.Err }

package podruntime

import (
	"errors"
	"fmt"
	"time"
)

// ErrCreateSandbox is wrapped in the error of a sandbox that could not be created.
var ErrCreateSandbox = errors.New("create pod sandbox")

// errUndone marks failures that left the runtime as it was.
var errUndone = errors.New("nothing was done")

// imageError is an image that cannot be had for now. One that was refused is
// asked for again soon, whenever the pull itself is repeated: it is known to
// wait by then, and shown as people look for it, as ImagePullBackOff.
type imageError struct {
	error
	again time.Time
}

// showPullBackOff is the wait before a refused image is asked for again only to
// find that its pull has to wait.
const showPullBackOff = time.Second

// newImageError keeps the time of the next try that err bears, if it bears one.
// Without one the caller decides when to try again.
func newImageError(err error, now time.Time) *imageError {
	e := &imageError{error: err}
	var held interface{ RetryAt() time.Time }
	if errors.As(err, &held) {
		e.again = held.RetryAt()
	}
	if !e.again.IsZero() && reasonOf(err) != reasonPullBackOff {
		e.again = now.Add(showPullBackOff)
	}
	return e
}

func (e *imageError) Unwrap() error      { return e.error }
func (e *imageError) RetryAt() time.Time { return e.again }

// Is has it match errUndone: an image is no part of what the runtime shows of a
// pod.
func (e *imageError) Is(target error) bool { return target == errUndone }

// Reasons of failed starts, as the waiting state of a container shows them and
// the kubelet's metrics count them.
const (
	// ReasonCrashLoop means that a restart waits for the crash-loop back-off.
	ReasonCrashLoop = "CrashLoopBackOff"
	// ReasonContainerConfig means that the runtime's configuration of the container
	// could not be made from the spec, or its files and mounts could not be made.
	ReasonContainerConfig = "CreateContainerConfigError"
	// ReasonCreateContainer and ReasonRunContainer mean that the runtime's call
	// CreateContainer or StartContainer failed.
	ReasonCreateContainer = "CreateContainerError"
	ReasonRunContainer    = "RunContainerError"
	// ReasonPostStart means that the postStart hook of a started container failed.
	ReasonPostStart = "PostStartHookError"

	reasonPullBackOff = "ImagePullBackOff" // as package images has it
)

// reasonError attaches to an error the reason that Kubernetes shows for it.
type reasonError struct {
	reason string
	err    error
}

func (e *reasonError) Error() string  { return e.err.Error() }
func (e *reasonError) Unwrap() error  { return e.err }
func (e *reasonError) Reason() string { return e.reason }

// crashLoopError is a restart that has to wait.
type crashLoopError struct {
	name  string
	pod   string
	delay time.Duration
	until time.Time
}

// Error returns the kubelet's text, which people search for.
func (e *crashLoopError) Error() string {
	return fmt.Sprintf("back-off %v restarting failed container=%s pod=%s", e.delay, e.name, e.pod)
}
func (e *crashLoopError) Reason() string       { return ReasonCrashLoop }
func (e *crashLoopError) RetryAt() time.Time   { return e.until }
func (e *crashLoopError) Is(target error) bool { return target == errUndone }

// reasonOf returns the reason in the tree of an error.
func reasonOf(err error) string {
	var named interface{ Reason() string }
	if errors.As(err, &named) {
		return named.Reason()
	}
	// The most general reason, for errors without one.
	return ReasonRunContainer
}

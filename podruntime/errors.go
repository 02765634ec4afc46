package podruntime

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/nodewright/nodewright/internal/callerror"
	"github.com/nodewright/nodewright/podlife"
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

const reasonPullBackOff = "ImagePullBackOff" // as package images has it

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
func (e *crashLoopError) Reason() string       { return podlife.CrashLoop.Reason() }
func (e *crashLoopError) RetryAt() time.Time   { return e.until }
func (e *crashLoopError) Is(target error) bool { return target == errUndone }

// reasonOf returns the reason of an error. An error without one has the most general reason.
func reasonOf(err error) string {
	return cmp.Or(podlife.ReasonOf(err), podlife.RunFailed.Reason())
}

// kindOf returns the kind of cause of a start that failed, or has to wait.
func kindOf(err error) podlife.Kind {
	if errors.As(err, new(*imageError)) {
		return podlife.ImageFailed
	}
	return podlife.Kind(reasonOf(err))
}

// causeOf returns the cause of a start that failed, or has to wait.
func causeOf(err error) podlife.Cause {
	return podlife.Cause{Kind: kindOf(err), Reason: reasonOf(err), Message: callerror.Shown(err)}
}

// as returns the error of a start with its kind.
func as(kind podlife.Kind, err error) error { return podlife.WithReason(kind.Reason(), err) }

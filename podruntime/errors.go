package podruntime

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/nodewright/nodewright/internal/callerror"
	"github.com/nodewright/nodewright/podlife"
)

// ErrCreateSandbox is wrapped by the error of a sync that could not create a sandbox.
var ErrCreateSandbox = errors.New("create pod sandbox")

// errUndone marks failures that left the runtime as it was.
var errUndone = errors.New("nothing was done")

// imageError is the error of an image that is missing on the node and cannot be pulled now. After
// a failed pull, RetryAt is soon, before the pull is repeated. This next try fails because the
// pull has to wait, and so shows the reason ImagePullBackOff for the container.
type imageError struct {
	error
	again time.Time
}

// showPullBackOff is the time between a failed pull and the next call of Images.Ensure, which fails
// with ImagePullBackOff if the pull has to wait.
const showPullBackOff = time.Second

// newImageError wraps err, an error of Images.Ensure. If err has no time for the next try, the new
// error has none either, and the caller decides when to try again.
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

// Is reports that the error matches errUndone: an observation of a pod does not show images.
func (e *imageError) Is(target error) bool { return target == errUndone }

const reasonPullBackOff = "ImagePullBackOff" // the reason that package images gives

// crashLoopError is the error of a restart that has to wait for the crash-loop back-off.
type crashLoopError struct {
	name  string
	pod   string
	delay time.Duration
	until time.Time
}

// Error returns the kubelet's text, since users search for it.
func (e *crashLoopError) Error() string {
	return fmt.Sprintf("back-off %v restarting failed container=%s pod=%s", e.delay, e.name, e.pod)
}
func (e *crashLoopError) Reason() string       { return podlife.CrashLoop.Reason() }
func (e *crashLoopError) RetryAt() time.Time   { return e.until }
func (e *crashLoopError) Is(target error) bool { return target == errUndone }

// reasonOf returns the reason of an error, or the most general reason if the error has none.
func reasonOf(err error) string {
	return cmp.Or(podlife.ReasonOf(err), podlife.RunFailed.Reason())
}

// kindOf returns the kind of cause for the error of a start that failed or has to wait.
func kindOf(err error) podlife.Kind {
	if errors.As(err, new(*imageError)) {
		return podlife.ImageFailed
	}
	return podlife.Kind(reasonOf(err))
}

// causeOf returns the cause for the error of a start that failed or has to wait.
func causeOf(err error) podlife.Cause {
	return podlife.Cause{Kind: kindOf(err), Reason: reasonOf(err), Message: callerror.Shown(err)}
}

// as returns err with the reason of kind.
func as(kind podlife.Kind, err error) error { return podlife.WithReason(kind.Reason(), err) }

package dra

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Callers decide by the type of the error: wait for the driver (NotYetError), report it
// (GoneError), or try again later (all others).

// ErrNotRunning is returned for calls before [Manager.Run] or after its end.
var ErrNotRunning = errors.New("the manager of resource claims is not running")

// ErrAway is the error of a [Driver] that could not be reached. Pods wait until it is back.
var ErrAway = errors.New("the driver cannot be reached")

// ErrNoHealth is returned by a [Driver] that does not report health.
var ErrNoHealth = errors.New("the driver does not report health")

// ErrNotPrepared means that a container uses a claim that is not prepared for its pod. The
// container must not start.
var ErrNotPrepared = errors.New("the claim is not prepared")

// NotYetError means that a driver is missing and may still register. Try again when
// [Manager.Subscribe] reports the pod. After Until, the error is a [*GoneError] instead.
type NotYetError struct {
	Driver string
	Claim  string // namespace/name
	// Why says for people why the pod waits.
	Why string
	// Until is the end of a grace period of five minutes. The period begins when the driver is
	// lost, or when the first pod names a driver that was never connected.
	Until time.Time
}

func (e *NotYetError) Error() string {
	return fmt.Sprintf("claim %s waits for driver %s until %s: %s", e.Claim, e.Driver, e.Until.Format(time.TimeOnly), e.Why)
}

// GoneError means that no instance of a driver was connected for five minutes. If one connects
// later, Subscribe reports the pod.
type GoneError struct {
	Driver, Claim, Why string
}

func (e *GoneError) Error() string {
	return fmt.Sprintf("claim %s: driver %s is missing: %s", e.Claim, e.Driver, e.Why)
}

// ClaimError means that a claim cannot be used.
type ClaimError struct {
	Claim string // namespace/name, or the name in spec.resourceClaims of the pod
	Err   error
}

func (e *ClaimError) Error() string { return fmt.Sprintf("claim %s: %v", e.Claim, e.Err) }

// Unwrap returns the reason why the claim cannot be used.
func (e *ClaimError) Unwrap() error { return e.Err }

// DriverError means that a driver returned an error or an invalid answer, or did not answer in
// time. The call may have had an effect. It is repeated when the pod is tried again.
type DriverError struct {
	Driver string
	Call   string   // name in the DRA API
	Claims []string // namespace/name of the failed claims
	Err    error
}

func (e *DriverError) Error() string {
	return fmt.Sprintf("driver %s: %s of claim %s: %v", e.Driver, e.Call, strings.Join(e.Claims, ", "), e.Err)
}

// Unwrap returns the error of the driver or of the connection to it.
func (e *DriverError) Unwrap() error { return e.Err }

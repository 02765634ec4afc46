package dra

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Errors are types where a caller decides by them: wait for the driver (NotYetError),
// say so to people (GoneError), or try again later (the others).

// ErrNotRunning is for calls before [Manager.Run], or after it.
var ErrNotRunning = errors.New("the manager of resource claims is not running")

// ErrAway is for a [Driver] that could not be reached: pods wait for it to come
// back.
var ErrAway = errors.New("the driver cannot be reached")

// ErrNoHealth is for a [Driver] that does not tell how its devices are.
var ErrNoHealth = errors.New("the driver does not tell of health")

// ErrNotPrepared means that a container uses a claim which is not prepared for
// its pod: it must not start.
var ErrNotPrepared = errors.New("the claim is not prepared")

// NotYetError means that a pod needs a driver that may come: it should be tried
// again when [Manager.Subscribe] reports the pod. From Until on the answer is
// a [*GoneError], though the driver may still come.
type NotYetError struct {
	Driver string
	Claim  string // namespace/name
	// Why says, for people, what the pod waits for.
	Why string
	// Until is the end of Config.Grace, counted from the loss of the driver or from
	// the first pod that named it.
	Until time.Time
}

func (e *NotYetError) Error() string {
	return fmt.Sprintf("claim %s waits for driver %s until %s: %s", e.Claim, e.Driver, e.Until.Format(time.TimeOnly), e.Why)
}

// GoneError means that no instance of a driver has registered for Config.Grace. The
// pod is still reported by Subscribe if one comes.
type GoneError struct {
	Driver, Claim, Why string
}

func (e *GoneError) Error() string {
	return fmt.Sprintf("claim %s: there is no driver %s: %s", e.Claim, e.Driver, e.Why)
}

// ClaimError means that a claim cannot be used as it is.
type ClaimError struct {
	Claim string // namespace/name, or the name in spec.resourceClaims of the pod
	Err   error
}

func (e *ClaimError) Error() string { return fmt.Sprintf("claim %s: %v", e.Claim, e.Err) }

// Unwrap is what is wrong with the claim.
func (e *ClaimError) Unwrap() error { return e.Err }

// DriverError means that a driver answered a call with an error, or wrongly, or not
// in time. The call may have had an effect, and is repeated when the pod is tried
// again.
type DriverError struct {
	Driver string
	Call   string   // as the DRA API names it
	Claims []string // namespace/name of those that are not done
	Err    error
}

func (e *DriverError) Error() string {
	return fmt.Sprintf("driver %s: %s of claim %s: %v", e.Driver, e.Call, strings.Join(e.Claims, ", "), e.Err)
}

// Unwrap is what the driver, or the connection to it, said.
func (e *DriverError) Unwrap() error { return e.Err }

package probe

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Type is one of the three kinds of probes.
type Type int

// The types, in the order of a container's life.
const (
	Startup Type = iota
	Readiness
	Liveness

	// types3 is the number of types.
	types3 = 3
)

// String returns the type in the spelling of metrics and events.
func (t Type) String() string {
	switch t {
	case Startup:
		return "Startup"
	case Readiness:
		return "Readiness"
	case Liveness:
		return "Liveness"
	default:
		return fmt.Sprintf("Type(%d)", int(t))
	}
}

// of returns a container's probe of that type, or nil.
func (t Type) of(c *v1.Container) *v1.Probe {
	switch t {
	case Startup:
		return c.StartupProbe
	case Readiness:
		return c.ReadinessProbe
	default:
		return c.LivenessProbe
	}
}

// initial returns the result of a new container.
func (t Type) initial() Result {
	switch t {
	case Readiness:
		// No traffic before the first success.
		return Failure
	case Liveness:
		// A container counts as alive until its probe fails.
		return Success
	default:
		return Unknown
	}
}

// holds reports whether a probe of the type t stops after the result r.
func (t Type) holds(r Result) bool {
	// A startup probe has one result for each container; after a liveness failure
	// the container is restarted.
	return t == Startup && r != Unknown || t == Liveness && r == Failure
}

// Result is the result of a probe.
type Result int

// The results; Unknown is the zero value.
const (
	Unknown Result = iota
	Success
	Failure
)

// String returns the result in the kubelet's spelling.
func (r Result) String() string {
	switch r {
	case Success:
		return "Success"
	case Failure:
		return "Failure"
	default:
		return "UNKNOWN"
	}
}

// Change is a new result of a probe.
type Change struct {
	Pod *v1.Pod // shared; not to be changed
	// Container is the name in the spec, ContainerID the instance of the result.
	Container   string
	ContainerID string
	Type        Type
	Result      Result
	// IP is the address that the checks used if the probe names no host. Streak has the checks that
	// made the result.
	IP     string
	Streak Streak
}

// Streak is a number of equal outcomes in a row.
type Streak struct {
	Times int
	Since time.Time // end of the first check
	// Output is the output of the last check, if that check failed.
	Output string
}

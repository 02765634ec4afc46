package topology

import (
	"errors"
	"fmt"
)

// Reasons for rejecting a pod, as the kubelet shows them. Errors of providers may have other
// reasons.
const (
	ReasonAffinity   = "TopologyAffinityError"
	ReasonUnexpected = "UnexpectedAdmissionError"
)

// Rejection is the error for a pod that cannot be placed.
type Rejection struct {
	// Container is the index of the container that could not be placed, or
	// WholePod.
	Container int
	// Cause and Message are the reason and message in the pod's status, in the
	// kubelet's words.
	Cause, Message string
	// Detail says which resources conflict, for people. It is empty if a provider failed to
	// allocate; then Err is set.
	Detail string
	// Err is the provider's error, or nil.
	Err error
}

// Error returns the message and the detail.
func (r *Rejection) Error() string {
	if r.Detail == "" {
		return r.Message
	}
	return r.Message + ": " + r.Detail
}

// Reason returns Cause.
func (r *Rejection) Reason() string { return r.Cause }

// Unwrap returns Err.
func (r *Rejection) Unwrap() error { return r.Err }

// misplaced returns the error for a request that the policy does not admit. The messages are the
// kubelet's (pkg/kubelet/cm/topologymanager), which has different ones for pods with pod-level
// resources, under the same reason.
func (a *admission) misplaced(s Step) error {
	message := "Resources cannot be allocated with Topology locality"
	switch {
	case !a.podLevel():
	case s.Container == WholePod:
		message = "Pod Scope pod with pod-level resources failed admission under pod-scope topology manager"
	default:
		message = "Pod Scope pod with pod-level resources failed admission with a container-level topology manager"
	}
	return &Rejection{
		Container: s.Container,
		Cause:     ReasonAffinity,
		Message:   message,
		Detail:    a.subject(s.Container) + s.Explain(),
	}
}

// subject returns the beginning of a message, which names the container. It returns "" if the
// message is about the pod as a whole.
func (a *admission) subject(container int) string {
	if container == WholePod {
		return ""
	}
	return fmt.Sprintf("container %s: ", a.pod.Containers[container].Name)
}

// refused returns the error for a provider that failed to allocate. If the error has its own
// reason, such as SMTAlignmentError, reason and text are kept.
func (a *admission) refused(container int, err error) error {
	r := &Rejection{
		Container: container,
		Cause:     ReasonUnexpected,
		Message:   fmt.Sprintf("Allocate failed due to %v, which is unexpected", err),
		Err:       err,
	}
	var own interface {
		error
		Reason() string
	}
	if errors.As(err, &own) {
		r.Cause, r.Message = own.Reason(), err.Error()
	}
	return r
}

package fit

import (
	"errors"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/topology"
)

// Admit is the node's whole admission of a pod beside others: everything that
// [Node.Admit] checks, and where [Node.Placement] and [Node.Devices] would place it. The
// Rejection is nil if the pod may run, and has the kubelet's reason and message if not.
//
// Nothing is taken: a Node whose Placement has the Result's State, with the Result's
// Devices, and the pod among others, is the node after it. The order is the kubelet's: a
// pod that the node cannot take for another reason is never placed. Errors of placement
// become Rejections too.
func Admit(n *Node, pod *v1.Pod, others []*v1.Pod) (Result, *Rejection) {
	if r := n.Admit(pod, others); r != nil {
		return Result{}, r
	}
	if n.Placement == nil {
		return Result{}, nil
	}
	asks := Pod(pod)
	// Without devices there is nothing to take off in the Result.
	if len(n.Devices) == 0 {
		result, err := n.Placement.Place(asks)
		return result, RejectionOf(err)
	}
	result, err := n.Placement.Place(asks, n.Devices.Provider(n.Machine, asks))
	if err != nil {
		return result, RejectionOf(err)
	}
	// Providers come back in the order in which they were passed in, and this is the only
	// one.
	result.Devices = result.Others[0].(devices).left()
	return result, nil
}

// RejectionOf is the Rejection for an error of [Fit] and [Placement.Place], nil for nil.
// A provider's own Rejection comes first. What is neither is reported as unexpected, with
// the error's text.
func RejectionOf(err error) *Rejection {
	var own *Rejection
	var misplaced *topology.Rejection
	switch {
	case err == nil:
		return nil
	case errors.As(err, &own):
		return own
	case errors.As(err, &misplaced):
		return &Rejection{Reason: misplaced.Reason(), Message: misplaced.Error()}
	}
	return &Rejection{Reason: topology.ReasonUnexpected, Message: err.Error()}
}

package fit

import (
	"errors"
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/topology"
)

// Admit decides whether a pod may run on the node beside others. It makes the checks of
// [Node.Admit], and places the pod by [Node.Placement] and [Node.Devices]. The Rejection is nil
// if the pod may run; otherwise it has the kubelet's reason and message.
//
// Admit does not change n. [Node.After] returns the node with the pod; from then on the pod
// belongs to the argument others of further calls. [Node.Without] returns the node after the pod
// has ended. The order is the kubelet's: a pod that is rejected for another reason is not placed.
// Errors of the placement become Rejections too.
func Admit(n *Node, pod *v1.Pod, others []*v1.Pod) (Result, *Rejection) {
	if r := n.Admit(pod, others); r != nil {
		return Result{}, r
	}
	if n.Placement == nil {
		return Result{}, nil
	}
	asks := Pod(pod)
	// Without devices, the Result has none.
	if len(n.Devices) == 0 {
		result, err := n.Placement.Place(asks)
		return result, RejectionOf(err)
	}
	result, err := n.Placement.Place(asks, n.Devices.Provider(n.Machine, asks))
	if err != nil {
		return result, RejectionOf(err)
	}
	// Providers are returned in the order in which they were passed. There is only one.
	d := result.Others[0].(devices)
	result.Devices, result.given = d.left(), d.given
	return result, nil
}

// After returns the node after adding a pod; r is the result of [Admit] for this node and
// pod. p does not change.
func (p *Node) After(pod *v1.Pod, r Result) *Node {
	next := *p
	if p.Placement != nil {
		placement := *p.Placement
		placement.State = r.State
		next.Placement = &placement
	}
	if len(r.given) > 0 {
		next.Devices, next.taken = r.Devices, maps.Clone(p.taken)
		if next.taken == nil {
			next.taken = map[types.UID]map[string]map[int]int{}
		}
		next.taken[pod.UID] = r.given
	}
	return &next
}

// Without returns the node without a pod that [Node.After] has added: its CPUs, memory and
// devices are free again. For an unknown pod it returns an equal node. p does not change.
func (p *Node) Without(uid types.UID) *Node {
	next := *p
	if p.Placement != nil {
		placement := *p.Placement
		placement.State = placement.Without(string(uid))
		next.Placement = &placement
	}
	if given := p.taken[uid]; given != nil {
		next.Devices, next.taken = p.Devices.less(given, -1), maps.Clone(p.taken)
		delete(next.taken, uid)
	}
	return &next
}

// RejectionOf returns the Rejection for an error of [Fit] or [Placement.Place], or nil if the
// error is nil. If the error wraps a Rejection of this package or of package topology, the result
// has its reason and message. Any other error becomes an UnexpectedAdmissionError with the
// error's text.
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

package admit

import (
	"cmp"
	"errors"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/internal/hooks"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/podruntime"
)

// CheckResize returns why a pod with the resources of has may not get those of asks; no reason
// means that it may. The reasons are those of in-place resize (KEP-1287): Infeasible is final for
// this spec, Deferred is tried again. detail is the value of a metric's label.
func (a *Admission) CheckResize(has, asks *v1.Pod) (reason, message, detail string) {
	if err := podruntime.CheckResize(has, asks); err != nil {
		return v1.PodReasonInfeasible, err.Error(), "not_resizable"
	}
	if err := hooks.InTurn(a.Guard, a.Hooks.Resizes, func(c part.ResizeChecker) error { return c.CheckResize(has, asks) }); err != nil {
		var why *part.ResizeError
		if errors.As(err, &why) {
			detail = why.Detail
		}
		return v1.PodReasonInfeasible, err.Error(), cmp.Or(detail, "other")
	}
	// Without other pods: a resize that does not fit then never will.
	if r := a.Node.Fits(asks, nil); r != nil {
		return v1.PodReasonInfeasible, r.Message, "insufficient_node_allocatable"
	}
	if r := a.Ask(asks, a.Active(asks.UID)); r != nil {
		return v1.PodReasonDeferred, r.Message, ""
	}
	return "", "", ""
}

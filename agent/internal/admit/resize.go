package admit

import (
	"cmp"
	"errors"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/internal/hooks"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/podruntime"
)

// CheckResize decides whether a running pod may be resized. current is the pod as it runs, and
// wanted the pod with the requested resources. If the resize is not possible, reason is one of
// in-place resize (KEP-1287): Infeasible is final for this spec, and Deferred is tried again. If
// it is possible, reason is "". detail is the value of a metric's label.
func (a *Admission) CheckResize(current, wanted *v1.Pod) (reason, message, detail string) {
	if err := podruntime.CheckResize(current, wanted); err != nil {
		return v1.PodReasonInfeasible, err.Error(), "not_resizable"
	}
	if err := hooks.InTurn(a.Guard, a.Hooks.Resizes, func(c part.ResizeChecker) error { return c.CheckResize(current, wanted) }); err != nil {
		var why *part.ResizeError
		if errors.As(err, &why) {
			detail = why.Detail
		}
		return v1.PodReasonInfeasible, err.Error(), cmp.Or(detail, "other")
	}
	// Without other pods: a resize that does not fit then never will.
	if r := a.Node.Fits(wanted, nil); r != nil {
		return v1.PodReasonInfeasible, r.Message, "insufficient_node_allocatable"
	}
	if r := a.Ask(wanted, a.Active(wanted.UID)); r != nil {
		return v1.PodReasonDeferred, r.Message, ""
	}
	return "", "", ""
}

package resources

import (
	"slices"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/fit"
)

// ShowFit adds the devices of a dry run to its answer; missing containers are appended in the order
// of fit.Pod. If no part decides on NUMA nodes, ShowFit chooses the devices itself, and changes the
// answer if that fails. Plugins may be asked for their preference. If the pod does not fit, the
// answer is not changed.
func (r *deviceReservation) ShowFit(f *local.Fit) {
	if !f.Fits {
		return
	}
	if err := r.choose(); err != nil {
		no := rejectionOf(r.pod, err)
		*f = local.Fit{Reason: no.Reason, Message: no.Message, RetryUntil: no.RetryUntil, Steps: f.Steps}
		return
	}
	for i, c := range fit.Pod(r.pod).Containers {
		at := slices.IndexFunc(f.Containers, func(has local.FitContainer) bool { return has.Name == c.Name })
		if at < 0 {
			at, f.Containers = len(f.Containers), append(f.Containers, local.FitContainer{Name: c.Name})
		}
		f.Containers[at].Devices = r.chosen.Chosen(i)
	}
}

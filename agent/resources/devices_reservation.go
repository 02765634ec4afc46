package resources

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/topology"
)

// deviceReservation is the reservation of a pod's devices. Its methods are not called concurrently.
type deviceReservation struct {
	p      *Devices
	pod    *v1.Pod
	asked  *devicemgr.Admission
	chosen *devicemgr.Admission // nil until Align
	taken  bool                 // devices were allocated that the pod did not have before
}

var _ part.Aligned = (*deviceReservation)(nil)

// Provider implements part.Aligned.
func (r *deviceReservation) Provider() topology.Provider { return provider{r.asked, r} }

// Align implements part.Aligned.
func (r *deviceReservation) Align(chosen topology.Provider) { r.chosen = chosen.(provider).Admission }

// provider passes an Admission to another part. It converts errors to a *part.Rejection, so that
// the pod waits if it should.
type provider struct {
	*devicemgr.Admission
	of *deviceReservation
}

// Allocate implements topology.Provider.
func (d provider) Allocate(container int, hint numa.Hint) (topology.Provider, error) {
	next, err := d.Choose(container, hint)
	switch {
	case err == nil:
		return provider{next, d.of}, nil
	case errors.Is(err, devicemgr.ErrChanged):
		d.of.p.host.Readmit() // another plugin has registered for the resource; it is called next
		return nil, wait(err.Error())
	}
	return nil, rejectionOf(d.of.pod, err)
}

// choose chooses devices on any NUMA nodes, unless another part has called Align.
func (r *deviceReservation) choose() error {
	if r.chosen != nil {
		return nil
	}
	result, err := r.p.bare.Place(fit.Pod(r.pod), r.asked)
	if err != nil {
		return err
	}
	r.chosen = result.Others[0].(*devicemgr.Admission)
	return nil
}

// Commit implements part.Reservation: the plugins allocate the devices. It returns when they have
// done so and the record is on disk.
func (r *deviceReservation) Commit(context.Context) error {
	defer r.p.decided(r.pod)
	err := r.choose()
	if err == nil {
		err = r.chosen.Commit()
	}
	switch {
	case err == nil:
		r.taken = !r.asked.Settled()
		return nil
	case errors.Is(err, devicemgr.ErrChanged):
		return fmt.Errorf("%w: %w", part.ErrChanged, err)
	}
	return rejectionOf(r.pod, err)
}

// Release implements part.Reservation. A pod that had its devices before this reservation keeps
// them until it has stopped or is gone. A failed Commit has already released its devices.
func (r *deviceReservation) Release() {
	r.p.decided(r.pod)
	if r.taken {
		r.taken = false
		r.p.cfg.Manager.Release(r.pod.UID)
	}
}

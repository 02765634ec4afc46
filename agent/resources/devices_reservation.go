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

// deviceReservation is what one pod asks for. The calls for it do not overlap.
type deviceReservation struct {
	p      *Devices
	pod    *v1.Pod
	asked  *devicemgr.Admission
	chosen *devicemgr.Admission // nil until Align
	taken  bool                 // the pod has been given devices that it did not have
}

var _ part.Aligned = (*deviceReservation)(nil)

// Provider implements part.Aligned.
func (r *deviceReservation) Provider() topology.Provider { return provider{r.asked, r.p} }

// Align implements part.Aligned.
func (r *deviceReservation) Align(chosen topology.Provider) { r.chosen = chosen.(provider).Admission }

// provider is an Admission for another part: its errors are a *part.Rejection, so
// that the pod waits where it should.
type provider struct {
	*devicemgr.Admission
	p *Devices
}

// Allocate implements topology.Provider.
func (d provider) Allocate(container int, hint numa.Hint) (topology.Provider, error) {
	next, err := d.Choose(container, hint)
	switch {
	case err == nil:
		return provider{next, d.p}, nil
	case errors.Is(err, devicemgr.ErrChanged):
		d.p.host.Readmit() // another plugin has taken over; it is asked next
		return nil, wait(err.Error())
	}
	return nil, rejectionOf(err)
}

// choose chooses devices near any NUMA nodes, unless a part that decides on
// those has done so.
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

// Commit implements part.Reservation: the plugins allocate. It may take until
// they have, and the record of it is on disk.
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
	return rejectionOf(err)
}

// Release implements part.Reservation. A pod that had its devices before it was
// asked about keeps them until it has stopped or is gone; and what failed to be
// committed has been taken back already.
func (r *deviceReservation) Release() {
	r.p.decided(r.pod)
	if r.taken {
		r.taken = false
		r.p.cfg.Manager.Release(r.pod.UID)
	}
}

package hooks

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/topology"
)

// reserveAttempts limits how often reservations are repeated after a change of the resources.
const reserveAttempts = 5

// Reserve makes the reservations of all parts for a pod and commits them. After an error all
// reservations are released.
func (h *Hooks) Reserve(ctx context.Context, g *Guard, pod *v1.Pod) (held []part.Reservation, r *part.Rejection) {
	for range reserveAttempts {
		var err error
		if held, err = h.tryReserve(ctx, g, pod); err == nil {
			return held, nil
		}
		r = rejection(err)
		if !errors.Is(err, part.ErrChanged) {
			break
		}
	}
	return nil, r
}

func (h *Hooks) tryReserve(ctx context.Context, g *Guard, pod *v1.Pod) ([]part.Reservation, error) {
	held, r := h.ask(ctx, g, pod, false)
	if r != nil {
		Release(g, held)
		return nil, r
	}
	for _, res := range held {
		if err := g.Call("reservation", func() error { return res.Commit(ctx) }); err != nil {
			Release(g, held)
			return nil, err
		}
	}
	return held, nil
}

// Rehearse makes the reservations of a dry run. After a rejection it also returns the reservations
// that were made before it.
func (h *Hooks) Rehearse(ctx context.Context, g *Guard, pod *v1.Pod) ([]part.Reservation, *part.Rejection) {
	return h.ask(ctx, g, pod, true)
}

func (h *Hooks) ask(ctx context.Context, g *Guard, pod *v1.Pod, dry bool) (held []part.Reservation, r *part.Rejection) {
	for _, res := range h.Reservers {
		err := g.Call(res.Name, func() error {
			got, no := res.Hook.Reserve(ctx, part.Request{Pod: pod, DryRun: dry, Before: held})
			if got != nil {
				held = append(held, got)
			}
			r = no
			return nil
		})
		if err != nil {
			r = rejection(err)
		}
		if r != nil {
			break
		}
	}
	return held, r
}

// Release releases reservations, the last first.
func Release(g *Guard, held []part.Reservation) {
	for _, res := range slices.Backward(held) {
		_ = g.Call("reservation", func() error { res.Release(); return nil })
	}
}

// rejection converts the error of a reservation to a rejection. An error without a reason gets
// the kubelet's reason UnexpectedAdmissionError.
func rejection(err error) *part.Rejection {
	if r := (*part.Rejection)(nil); errors.As(err, &r) {
		return r
	}
	return Unexpected(err)
}

// Unexpected returns the rejection for an error without a reason.
func Unexpected(err error) *part.Rejection {
	return &part.Rejection{Reason: topology.ReasonUnexpected, Message: fmt.Sprintf("Allocate failed due to %v, which is unexpected", err)}
}

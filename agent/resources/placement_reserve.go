package resources

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/topology"
)

const (
	// reasonNotRestored is the reason of pods that wait until the allocations are known.
	reasonNotRestored = "PlacementNotRestored"
	// reserveTimeout limits a wait. Since the agent decides on the pod again every minute,
	// and each decision resets the time, the pod waits without a limit.
	reserveTimeout = 5 * time.Minute
	// placeAttempts limits how often a pod is placed again because the state changed during the
	// placement.
	placeAttempts = 16
)

// Waits implements part.Reserver: Reserve never waits.
func (*Placement) Waits(*v1.Pod) bool { return false }

// Reserve implements part.Reserver. Reservations of earlier parts that are part.Aligned take part
// in the decision. Their providers may block, which delays only this pod. A pod that has an
// allocation already keeps it.
func (p *Placement) Reserve(_ context.Context, r part.Request) (part.Reservation, *part.Rejection) {
	with := alignedOf(r.Before)
	if p.idle && len(with) == 0 {
		return nil, nil
	}
	node, _, restored := p.now()
	if !restored {
		return nil, notRestored()
	}
	n := fit.Pod(r.Pod)
	if r.DryRun {
		return dryRun(node, n, with)
	}
	start := time.Now()
	result, err := p.place(n, with)
	if err != nil && p.releaseEnded() {
		result, err = p.place(n, with)
	}
	p.met.admission(n, result, err, time.Since(start))
	if err != nil {
		return nil, fit.RejectionOf(err)
	}
	with.align(result)
	return reservation{p, r.Pod.UID}, nil
}

func notRestored() *part.Rejection {
	return &part.Rejection{
		Reason: reasonNotRestored, Message: "the CPUs and memory of the running pods: they are not known yet",
		RetryUntil: time.Now().Add(reserveTimeout), Outside: true,
	}
}

// dryRun does the work of Reserve for a dry run: it changes no state.
func dryRun(node fit.Placement, n numa.Pod, providers aligned) (part.Reservation, *part.Rejection) {
	result, err := node.Place(n, providers.providers()...)
	if err == nil {
		providers.align(result)
	}
	return preview{n, result}, fit.RejectionOf(err)
}

// place decides on a pod, and takes the resources for it. reservations are the reservations of
// other parts that take part in the decision.
func (p *Placement) place(n numa.Pod, reservations aligned) (fit.Result, error) {
	if len(reservations) == 0 {
		p.mu.Lock()
		defer p.mu.Unlock()
		result, err := p.node.Place(n)
		if err == nil {
			p.take(n, result)
		}
		return result, err
	}
	for range placeAttempts { // without the lock, since providers may call a plugin
		node, version, _ := p.now()
		result, err := node.Place(n, reservations.providers()...)
		if err != nil || p.takeAt(version, n, result) {
			return result, err
		}
	}
	return fit.Result{}, &part.Rejection{
		Reason: topology.ReasonUnexpected, Message: "CPUs and memory were given to others while the pod was placed",
		RetryUntil: time.Now().Add(reserveTimeout),
	}
}

// takeAt applies a result that was computed for a version of the state. It does nothing and
// returns false if the state has changed since.
func (p *Placement) takeAt(version uint64, n numa.Pod, result fit.Result) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.version != version {
		return false
	}
	p.take(n, result)
	return true
}

// take applies a result to the state. The caller holds p.mu.
func (p *Placement) take(n numa.Pod, result fit.Result) {
	if p.idle {
		return
	}
	p.decide(result.State)
	p.know(n)
}

// reservation is what Reserve returns for a pod that has been given CPUs and memory. Release gives
// them back.
type reservation struct {
	p   *Placement
	uid types.UID
}

// Commit implements part.Reservation. It does nothing: Reserve has made the decision,
// and Prepare carries it out.
func (reservation) Commit(context.Context) error { return nil }

// Release implements part.Reservation. It does not block.
func (r reservation) Release() { r.p.release(r.uid) }

// aligned has the reservations that take part in a decision.
type aligned []part.Aligned

func alignedOf(before []part.Reservation) aligned {
	var out aligned
	for _, r := range before {
		if a, ok := r.(part.Aligned); ok {
			out = append(out, a)
		}
	}
	return out
}

// providers returns the providers with their state before the pod takes anything.
func (list aligned) providers() []topology.Provider {
	out := make([]topology.Provider, 0, len(list))
	for _, a := range list {
		out = append(out, a.Provider())
	}
	return out
}

// align passes the chosen providers to the reservations.
func (list aligned) align(result fit.Result) {
	for i, a := range list {
		a.Align(result.Others[i])
	}
}

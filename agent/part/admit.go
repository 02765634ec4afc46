package part

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/topology"
)

// Rejection describes why a pod may not run here, or not yet; see [fit.Rejection].
type Rejection = fit.Rejection

// Admitter is a Part that decides whether a pod may run on this node.
type Admitter interface {
	// Admit returns nil if pod may run beside others, and otherwise the reason why it may not.
	// others are the running and the admitted pods. It must not block. A part that needs other
	// data keeps it in memory. While the data is missing, it returns a Rejection that makes the
	// pod wait; it calls Host.Readmit when its answer changes. Admit may be called several times
	// for a pod, with different others, and from any goroutine. A pod may be admitted and never
	// start.
	Admit(pod *v1.Pod, others []*v1.Pod) *Rejection
}

// AdmitFunc returns a Part with this name, whose Admit is the function.
func AdmitFunc(name string, admit func(pod *v1.Pod, others []*v1.Pod) *Rejection) Part {
	return admitFunc{name, admit}
}

type admitFunc struct {
	name  string
	admit func(*v1.Pod, []*v1.Pod) *Rejection
}

func (f admitFunc) Name() string { return f.name }

func (f admitFunc) Admit(pod *v1.Pod, others []*v1.Pod) *Rejection { return f.admit(pod, others) }

// Reserver is a Part that assigns exclusive resources to a pod: CPUs, devices, a licence.
// After all Admitters have admitted the pod, the Reservers reserve in the order of the
// parts, and then commit in that order. If one rejects the pod, the reservations are
// released in reverse order.
type Reserver interface {
	// Adopt is called for a pod that runs already, before any other pod of the same
	// change is admitted. The pod must keep its resources. Adopt is called on the loop
	// and must not block.
	Adopt(pod *v1.Pod)
	// Waits reports whether Reserve or Commit would have to wait for a plugin, a disk
	// or a server. If no part waits, pods are admitted on the loop, in their order.
	// Otherwise reservations are made off the loop, concurrently, and the pods count as
	// admitted meanwhile. Waits is called before each Reserve that is not a dry run: on
	// the loop, or in the worker of a pod that was created again while it was
	// terminating. It must not block.
	Waits(pod *v1.Pod) bool
	// Reserve reserves the resources that the pod requests. It returns a nil
	// Reservation if the pod requests none. If Waits returned false it must not block;
	// otherwise it may block until ctx ends. For a dry run it may return a Reservation
	// together with a Rejection.
	Reserve(ctx context.Context, r Request) (Reservation, *Rejection)
}

// Request is the input of Reserver.Reserve.
type Request struct {
	Pod *v1.Pod // shared and read-only
	// DryRun asks what would be reserved. Reserve must not reserve anything, not even
	// for a moment: neither Commit nor Release follows.
	DryRun bool
	// Before lists the reservations of earlier parts for the same pod. One that is
	// [Aligned] takes part in a decision about NUMA nodes.
	Before []Reservation
}

// Reservation holds the resources that a part has reserved for a pod.
type Reservation interface {
	// Commit assigns the resources to the pod. An error that is a *Rejection rejects
	// the pod with it. After [ErrChanged] all parts reserve again. Any other error
	// rejects the pod with the reason UnexpectedAdmissionError.
	Commit(ctx context.Context) error
	// Release releases the resources, committed or not.
	Release()
}

// ErrChanged is returned by Commit if the reserved resources have been taken since Reserve.
var ErrChanged = errors.New("the reserved resources were allocated to another pod meanwhile")

// Aligned is a Reservation of resources on NUMA nodes. The next part that decides on NUMA
// nodes includes it in its decision.
type Aligned interface {
	Reservation
	// Provider returns the resource for the topology decision, in its state before the
	// pod takes any of it.
	Provider() topology.Provider
	// Align is called after the decision with the new provider, in its state after the
	// pod has taken its units.
	Align(chosen topology.Provider)
}

// Forecaster is a Reserver that can tell whether a preemption would help.
type Forecaster interface {
	// FitsWithout reports whether Reserve would succeed for the pod if the pods of
	// these UIDs were gone. It is called on the loop and must not block.
	FitsWithout(pod *v1.Pod, gone []types.UID) bool
}

// Reviver is a Part that terminates or rejects pods, and starts them again, such as static pods
// after an eviction: no controller would replace them.
type Reviver interface {
	// Over reports whether the cause of a pod's termination or rejection is over, so that
	// the pod can start again now. It is called on the loop and must not block. It may be
	// called several times. It is called for pods that the sources still want, whose worker
	// has finished, and which may start again after that cause ([podlife.Cause.Returns]).
	Over(pod *v1.Pod, cause podlife.Cause) bool
	// Begins is called when the pod starts again, for the part whose Over returned true. It
	// is called on the loop and must not block.
	Begins(pod *v1.Pod, cause podlife.Cause)
}

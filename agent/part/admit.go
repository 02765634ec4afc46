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
	// Admit returns nil, or why pod may not run beside others, which are the
	// pods that run or were admitted already. It is called on the loop and must
	// not block: what it needs from elsewhere it keeps in memory, lets the pod
	// wait until it has it, and calls Host.Readmit when the answer changes. It
	// may be asked about the same pod several times, with different others, and
	// from any goroutine; admitting is no promise that the pod comes.
	Admit(pod *v1.Pod, others []*v1.Pod) *Rejection
}

// AdmitFunc makes a Part of a function that admits.
func AdmitFunc(name string, admit func(pod *v1.Pod, others []*v1.Pod) *Rejection) Part {
	return admitFunc{name, admit}
}

type admitFunc struct {
	name  string
	admit func(*v1.Pod, []*v1.Pod) *Rejection
}

func (f admitFunc) Name() string { return f.name }

func (f admitFunc) Admit(pod *v1.Pod, others []*v1.Pod) *Rejection { return f.admit(pod, others) }

// Reserver is a Part that gives a pod what it has for itself alone: CPUs,
// devices, a licence. After all Admitters have admitted the pod, the parts
// reserve in their order; then they commit in that order. If one rejects, what
// was reserved is released in reverse order.
type Reserver interface {
	// Adopt takes over a pod that runs already, before any other pod of the
	// same change is admitted. The pod keeps what it has. It is called on the
	// loop and must not block.
	Adopt(pod *v1.Pod)
	// Waits reports whether Reserve or Commit would have to wait for somebody: a
	// plugin, a disk, a server. Pods for which no part waits are admitted at once
	// and in their order; the others off the loop, side by side, while they count
	// as admitted. It is called on the loop, or by the worker of a pod that came back while
	// it was being ended, before each Reserve that is no dry run, and must not block.
	Waits(pod *v1.Pod) bool
	// Reserve sets aside what the pod asks for. It returns a nil Reservation if
	// the pod asks for nothing. If Waits reported false it must not block;
	// otherwise it may until ctx ends. For a dry run it may return a Reservation
	// beside a Rejection, for what it can show.
	Reserve(ctx context.Context, r Request) (Reservation, *Rejection)
}

// Request is what a Reserver is asked.
type Request struct {
	Pod *v1.Pod // shared and read-only
	// DryRun asks what would be reserved. Nothing may be taken, not even for a
	// moment: neither Commit nor Release follows.
	DryRun bool
	// Before are the reservations of the parts before this one, for the same
	// pod. One that is [Aligned] takes part in a decision about NUMA nodes.
	Before []Reservation
}

// Reservation is what one part has set aside for one pod.
type Reservation interface {
	// Commit makes it the pod's own. An error that is a *Rejection rejects the
	// pod with it, [ErrChanged] has everything reserved anew, and any other
	// rejects the pod as UnexpectedAdmissionError.
	Commit(ctx context.Context) error
	// Release gives it back, committed or not.
	Release()
}

// ErrChanged means that what a reservation was made on has changed since.
var ErrChanged = errors.New("what was reserved has been taken meanwhile")

// Aligned is a Reservation whose resources are tied to NUMA nodes. The first
// part after it that decides on NUMA nodes lets it take part.
type Aligned interface {
	Reservation
	// Provider is the resource as topology knows it, before the pod took
	// anything.
	Provider() topology.Provider
	// Align hands back the provider with what the pod takes of it.
	Align(chosen topology.Provider)
}

// Forecaster is a Reserver that can tell the future.
type Forecaster interface {
	// FitsWithout reports whether the pod could be given what it asks for if
	// the pods of these UIDs were gone. It is called on the loop and must not
	// block.
	FitsWithout(pod *v1.Pod, gone []types.UID) bool
}

// Reviver is a Part that has ended or rejected pods that nobody else would make
// again.
type Reviver interface {
	// Over reports whether the cause for which a pod ended, or was rejected, is over, so
	// that the pod is to begin again now. It is called on the loop, for pods that the
	// sources still want, that may return for that cause ([podlife.Cause.Returns]) and
	// whose worker has finished, and must not block. It may be asked several times.
	Over(pod *v1.Pod, why podlife.Cause) bool
	// Begins tells the part that reported so that the pod begins again. It is called on
	// the loop and must not block.
	Begins(pod *v1.Pod, why podlife.Cause)
}

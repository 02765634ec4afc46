package part

import (
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podlife"
)

// Preempter is a Part that terminates pods so that another pod fits.
type Preempter interface {
	// Victims returns the pods in the list others that have to be terminated so that
	// pod gets the missing resources. It returns none if this is not possible. missing
	// has the amount by resource; a pod counts as 1 of the resource "pods". Victims is
	// called on the loop and must not block. It is called only for a pod whose sole
	// obstacle is that other pods have the resources. others lists the running and
	// admitted pods that are not terminating. All pods are shared and read-only.
	Victims(pod *v1.Pod, others []*v1.Pod, missing v1.ResourceList) []*v1.Pod
	// Preempt returns the cause of a victim's termination. It is called on the loop for
	// each victim, after it is certain that pod would be admitted without the victims,
	// and must not block. The agent then terminates the victim at once, and pod waits
	// for the victim's end. ended, if not nil, is called off the loop when the victim's
	// containers have stopped. If they could not be stopped, it is called with the
	// error. missing is the same as for Victims.
	Preempt(pod, victim *v1.Pod, missing v1.ResourceList) (cause podlife.Cause, ended func(error))
}

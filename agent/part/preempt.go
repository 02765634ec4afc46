package part

import (
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podlife"
)

// Preempter is a Part that ends pods for the sake of one that does not fit beside
// them.
type Preempter interface {
	// Victims returns which of others are to end so that pod has what is missing,
	// by resource, or none; pods count as 1 of the resource "pods". It is called on
	// the loop, for a pod that nothing but what others have keeps from running, and
	// must not block. others are those that run or were admitted, and are not
	// ending; all are shared and read-only.
	Victims(pod *v1.Pod, others []*v1.Pod, missing v1.ResourceList) []*v1.Pod
	// Preempt returns the cause of a victim's end, once all would be admitted without
	// them: the agent begins to end it at once, and pod waits for that. It is called on the
	// loop, for each victim, and must not block. ended, if it is not nil, is called
	// beside the loop when the victim's containers have stopped, or with what kept
	// them from it. missing is that of Victims.
	Preempt(pod, victim *v1.Pod, missing v1.ResourceList) (why podlife.Cause, ended func(error))
}

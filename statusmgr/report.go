package statusmgr

import (
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
)

// Report is a status of a pod, and what its publication depends on.
type Report struct {
	Status v1.PodStatus
	// Shown is how others see the pod.
	Shown Shown
	// Runs says whether containers of the pod may run. A terminal phase is withheld until
	// a Report says No, and published with the status of that one.
	Runs observed.Answer
}

// Shown is how others see a pod: the object that a status is published under, as a
// difference to that object's status. In the zero value there is none.
type Shown struct {
	// Object is the pod itself, or the mirror of a static pod; nil if there is none now. It
	// is shared and must not be changed.
	Object *v1.Pod
	// By is how certain it is that what a status has else than Object is news. A status is
	// only published if this is Confirmed. Until then it is seen in this process alone.
	By podlife.Certainty
}

// Itself returns the Shown of a pod that is published as the object that it is.
func Itself(pod *v1.Pod) Shown { return Shown{Object: pod, By: podlife.Confirmed} }

// status is the status in which others see the pod: that of the pod if nothing shows it.
func (s Shown) status(pod *v1.Pod) *v1.PodStatus {
	if s.Object != nil {
		return &s.Object.Status
	}
	return &pod.Status
}

// target is the object to publish a status under; nil if there is none now.
func (s Shown) target() *v1.Pod {
	if s.By < podlife.Confirmed {
		return nil
	}
	return s.Object
}

package statusmgr

import (
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
)

// Report is a status of a pod, and what its publication depends on.
type Report struct {
	Status v1.PodStatus
	// Life is the number of the pod's life ([podlife.Life]). A Report of an earlier life than
	// the last one is ignored.
	Life uint32
	// Shown is how others see the pod.
	Shown Shown
	// Runs says whether containers of the pod may run. A terminal phase is withheld until
	// a Report says No, and published with the status of that one.
	Runs observed.Answer
	// Why is the cause that the status shows: why the pod has failed, or waits to be
	// admitted. Without one it is read from the status ([podlife.CauseOf]).
	Why podlife.Cause
}

// cause returns the cause of a status: the one given, if the status can show it.
func (r *Report) cause() podlife.Cause {
	if r.Why != (podlife.Cause{}) && r.Status.Phase != v1.PodSucceeded {
		return r.Why
	}
	why, _ := podlife.CauseOf(&r.Status)
	return why
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

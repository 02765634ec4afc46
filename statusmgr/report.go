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
	// Shown is the object under which the status is published, and how certain that object is.
	Shown Shown
	// Runs says whether containers of the pod may run. A terminal phase is withheld until a Report
	// says No, and then published with the status of that Report.
	Runs observed.Answer
	// Why is the cause that the status shows: why the pod has failed, or waits to be admitted. If
	// Why is not set, the cause is read from the status ([podlife.CauseOf]).
	Why podlife.Cause
}

// cause returns Why, or the cause that is read from the status if Why is not set or the phase is
// Succeeded.
func (r *Report) cause() podlife.Cause {
	if r.Why != (podlife.Cause{}) && r.Status.Phase != v1.PodSucceeded {
		return r.Why
	}
	why, _ := podlife.CauseOf(&r.Status)
	return why
}

// Shown says under which object the status of a pod is published. The zero value means that there
// is no object.
type Shown struct {
	// Object is the pod itself, or the mirror pod of a static pod. It is nil if there is no
	// mirror pod now. Object is shared and must not be changed.
	Object *v1.Pod
	// By is how certain it is that Object is current, so that a difference between the status and
	// Object's status is a real change. A status is published only if By is Confirmed. Until then
	// only this process sees the status.
	By podlife.Certainty
}

// Itself returns the Shown of a pod that is published under its own object.
func Itself(pod *v1.Pod) Shown { return Shown{Object: pod, By: podlife.Confirmed} }

// status returns the status of Object, or the status of pod if Object is nil.
func (s Shown) status(pod *v1.Pod) *v1.PodStatus {
	if s.Object != nil {
		return &s.Object.Status
	}
	return &pod.Status
}

// target returns the object under which a status is published. It returns nil if there is no
// object now, or if By is not Confirmed.
func (s Shown) target() *v1.Pod {
	if s.By < podlife.Confirmed {
		return nil
	}
	return s.Object
}

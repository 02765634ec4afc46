package fit

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/podcheck"
)

// reasonInvalid is the reason for rejecting an invalid pod. Kubernetes has no such reason, since
// its API server rejects the pod.
const reasonInvalid = "InvalidPod"

// maxTold limits the mistakes that a rejection's message lists.
const maxTold = 3

// valid rejects pods whose names would lead out of the pod's directories, and pods with unknown
// values of enumerations: custom sources may not validate their pods, and a newer API server may
// have values that this node does not know.
func (p *Node) valid(pod *v1.Pod, _ []*v1.Pod) *Rejection {
	errs := podcheck.Pod(pod)
	if len(errs) == 0 {
		return nil
	}
	message := errs[:min(len(errs), maxTold)].ToAggregate().Error()
	if len(errs) > maxTold {
		message += fmt.Sprintf(" and %d more", len(errs)-maxTold)
	}
	return &Rejection{Reason: reasonInvalid, Message: message, Final: true}
}

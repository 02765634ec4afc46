package fit

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/podcheck"
)

// reasonInvalid is why a pod is rejected that no node should take. Kubernetes has
// no word for it: there, such a pod does not come past the API server.
const reasonInvalid = "InvalidPod"

// maxTold is how many mistakes a rejection reports. The message is part of the pod's
// status, which is read by people.
const maxTold = 3

// valid rejects pods with names that would lead out of the pod's directories, and
// with words that the API does not have: sources other than readers of manifests
// check nothing, and a newer API server may know words that this node does not.
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

package podlife

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podmeta"
)

// Life identifies one life of a pod: the time from one beginning of the pod to the next under the
// same UID. A static pod that ended, and any pod that was rejected, may begin again under its UID.
// This is its next life, with a higher number. Sandboxes, stored statuses and mirrors have the
// number of the life that they belong to. N is 0 for the first life, and for objects that kubelets
// and earlier builds left without a number.
type Life struct {
	UID types.UID
	N   uint32
}

// Next returns the life that follows l.
func (l Life) Next() Life { return Life{l.UID, l.N + 1} }

// Outlived reports whether a mirror pod shows an earlier life of a static pod than l. Such a
// mirror has to be replaced, since the phase of a pod in the API does not go back. status is the
// pod's newest status, or nil if it has none yet. runs says whether one of its containers runs.
//
//  1. The mirror's number is lower: the answer is yes.
//  2. Otherwise a mirror whose phase is not terminal is of this life: no.
//  3. The pod has a status: yes if the phase of the status is not terminal.
//  4. It has no status: yes if one of its containers runs, since no container of a pod that has
//     ended runs; or if the mirror says that the pod was rejected, or that the node ended it, as
//     at a shutdown. Like the kubelet, the agent admits such a pod again after a restart.
//
// Rules 3 and 4 are for mirrors and pods without a number. The mirror of a pod that ran and ended
// by itself stays: it may be the only record of the pod.
func Outlived(l Life, status *v1.PodStatus, runs observed.Answer, mirror *v1.Pod) bool {
	was := &mirror.Status
	switch {
	case podmeta.LifeIn(mirror.Annotations, podmeta.AnnotationLife) < l.N:
		return true
	case !podmeta.IsTerminal(was.Phase):
		return false
	case status != nil && status.Phase != "":
		return !podmeta.IsTerminal(status.Phase)
	case runs == observed.Yes:
		return true
	default:
		return len(was.ContainerStatuses)+len(was.InitContainerStatuses) == 0 || EndedByNode(was)
	}
}

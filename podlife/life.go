package podlife

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podmeta"
)

// Life names one life of a pod. A static pod that ended, and any pod that was rejected, may begin
// again under its UID. That is its next life, with a higher number. Sandboxes, stored statuses and
// mirrors have the number of the life that they belong to. N is 0 for the first life, and for
// what kubelets and earlier builds have left without a number.
type Life struct {
	UID types.UID
	N   uint32
}

// Next returns the life that follows l.
func (l Life) Next() Life { return Life{l.UID, l.N + 1} }

// Outlived reports whether a mirror shows an earlier life of a static pod than l. The phase of a
// pod of the API does not go back, so that such a mirror has to be replaced. status is the pod's
// newest status, nil if it has none yet, and runs says whether one of its containers runs.
//
//  1. The mirror's number is lower.
//  2. Otherwise a mirror that is not terminal is of this life.
//  3. The pod has a status: its phase is not terminal.
//  4. It has none: one of its containers runs, since a pod that has ended has none; or the mirror
//     says that the pod was rejected, or ended for the node's sake, as at a shutdown. Such a pod is
//     admitted again after a restart of the agent, as by the kubelet.
//
// Rules 3 and 4 are for numbers that nobody knows. The mirror of a pod that ran and ended by itself
// stays: it may be all that is left of it.
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

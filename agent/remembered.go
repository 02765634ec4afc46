package agent

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podspec"
)

// Pods that are only remembered. While the API server does not answer, an agent that begins
// runs the pods that the disk has of it. A disk that fails or hangs may have one that came to
// its end meanwhile, and was removed from the runtime; run again, a Job's work would be done
// twice. So a pod that the runtime has nothing of waits for the server, if the server has
// answered an agent since the machine booted. A node that comes up without a network runs
// all its pods.

// mayHaveEnded reports whether a pod is only remembered, and may have come to its end.
func (a *Agent) mayHaveEnded(pod *v1.Pod) bool {
	return a.boots.Answered() && !podmeta.IsStatic(pod) && a.pods.Want(pod.UID).By < podlife.Confirmed && a.pleg.View(pod.UID).Absent() != observed.No
}

// certainty is how certain the definition of a pod is that its worker has. If it is only
// remembered, what runs may have been made from a newer one, that a failing disk did not
// take. The worker looks again when the server has answered (see publishConfirmed).
func (a *Agent) certainty(pod *v1.Pod) podlife.Certainty {
	if podmeta.IsStatic(pod) {
		return podlife.Confirmed
	}
	w := a.pods.Want(pod.UID)
	if w.Pod != nil && !sameDefinitions(w.Pod, pod) {
		return podlife.Remembered // the worker gets the newer one any moment
	}
	return w.By
}

// sameDefinitions reports whether containers of two versions of a pod are made alike.
func sameDefinitions(a, b *v1.Pod) bool {
	same := func(a, b v1.Container) bool { return podspec.Hash(&a) == podspec.Hash(&b) }
	return slices.EqualFunc(a.Spec.Containers, b.Spec.Containers, same) && slices.EqualFunc(a.Spec.InitContainers, b.Spec.InitContainers, same)
}

package agent

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podspec"
)

// Pods that come only from the stored state of an API server. While the API server does not answer,
// a starting agent runs the stored pods. If the disk failed or hung, a stored pod may have ended
// since then and been removed from the runtime; if it ran again, a Job's work would be done twice.
// So a stored pod that the runtime does not have waits for the server, if the server has answered
// an agent since the machine booted. A node that boots without a network runs all its pods.

// mayHaveEnded reports whether a pod comes only from the stored state and may have ended.
func (a *Agent) mayHaveEnded(pod *v1.Pod) bool {
	return a.boots.Answered() && !podmeta.IsStatic(pod) && a.pods.Want(pod.UID).By < podlife.Confirmed && a.pleg.View(pod.UID).Absent() != observed.No
}

// certainty returns how certain the definition of a pod is. A pod that comes only from the stored
// state is uncertain: its containers may have been created from a newer version, which a failing
// disk did not store. The worker syncs again when the server has answered (see publishConfirmed).
func (a *Agent) certainty(pod *v1.Pod) podlife.Certainty {
	if podmeta.IsStatic(pod) {
		return podlife.Confirmed
	}
	w := a.pods.Want(pod.UID)
	if w.Pod != nil && !sameDefinitions(w.Pod, pod) {
		return podlife.Remembered // the worker is about to get the newer version
	}
	return w.By
}

// sameDefinitions reports whether containers of two versions of a pod have the same definition.
func sameDefinitions(a, b *v1.Pod) bool {
	same := func(a, b v1.Container) bool { return podspec.Hash(&a) == podspec.Hash(&b) }
	return slices.EqualFunc(a.Spec.Containers, b.Spec.Containers, same) && slices.EqualFunc(a.Spec.InitContainers, b.Spec.InitContainers, same)
}

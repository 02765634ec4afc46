package cri

// Labels that the kubelet puts on sandboxes and containers. crictl, log collectors and dashboards
// find pods by these labels, so they must not be changed.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"
)

// Annotations that the kubelet puts on containers. They have the data for the status and the
// termination of a container (termination message, preStop hook, grace period) when the spec of its
// pod is no longer known.
const (
	// Reader reads the hash and the restart count. After a restart of the agent they show whether a
	// container was made from the current spec, and how often it was started.
	AnnotationHash                      = "io.kubernetes.container.hash"
	AnnotationRestartCount              = "io.kubernetes.container.restartCount"
	AnnotationTerminationMessagePath    = "io.kubernetes.container.terminationMessagePath"
	AnnotationTerminationMessagePolicy  = "io.kubernetes.container.terminationMessagePolicy"
	AnnotationPreStop                   = "io.kubernetes.container.preStopHandler"
	AnnotationPorts                     = "io.kubernetes.container.ports"
	AnnotationPodDeletionGracePeriod    = "io.kubernetes.pod.deletionGracePeriod"
	AnnotationPodTerminationGracePeriod = "io.kubernetes.pod.terminationGracePeriod"
)

// AnnotationResources has the resources that a container was created with, as JSON
// of a v1.ResourceRequirements. The kubelet does not have this annotation.
const AnnotationResources = "io.nodewright.container.resources"

// AnnotationLife has, on a sandbox, the number of the pod's life (podlife.Life) for which the
// sandbox was made. The kubelet does not have this annotation.
const AnnotationLife = "io.nodewright.pod.life"

package cri

// Labels that the kubelet puts on sandboxes and containers. crictl, log
// collectors and dashboards find pods by them, so they are kept to the letter.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"
)

// Annotations that the kubelet puts on containers. They have what the status and
// the end of a container need (termination message, preStop hook, grace period)
// when the spec of its pod is no longer known.
const (
	// Reader reads hash and restart count. After a restart of the agent they show
	// whether a container was made from the present spec, and how often it was
	// started.
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

// AnnotationLife is this project's own: the number of the life of its pod that a sandbox
// was made in, as podlife.Life has it.
const AnnotationLife = "io.nodewright.pod.life"

package cri

// Labels that the kubelet puts on sandboxes and containers. crictl, log
// collectors and dashboards find pods by them, so they are kept to the letter.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"
)

// Annotations that the kubelet puts on containers. They carry what is needed
// to account for a container, and to end it well, when its pod's spec is no
// longer known.
const (
	// Hash and restart count are read back by Reader: they tell whether a container
	// is of the spec of now, and how often it was started, after a restart of the
	// agent.
	AnnotationHash                      = "io.kubernetes.container.hash"
	AnnotationRestartCount              = "io.kubernetes.container.restartCount"
	AnnotationTerminationMessagePath    = "io.kubernetes.container.terminationMessagePath"
	AnnotationTerminationMessagePolicy  = "io.kubernetes.container.terminationMessagePolicy"
	AnnotationPreStop                   = "io.kubernetes.container.preStopHandler"
	AnnotationPorts                     = "io.kubernetes.container.ports"
	AnnotationPodDeletionGracePeriod    = "io.kubernetes.pod.deletionGracePeriod"
	AnnotationPodTerminationGracePeriod = "io.kubernetes.pod.terminationGracePeriod"
)

// AnnotationResources is this project's own: the resources, as JSON of a
// v1.ResourceRequirements, that a container was created with.
const AnnotationResources = "io.nodewright.container.resources"

// AnnotationLife is this project's own: the number of the life of its pod that a sandbox
// was made in, as podlife.Life has it.
const AnnotationLife = "io.nodewright.pod.life"

// Package podstart is a part of an agent that measures how long pods take to start,
// by the kubelet's metrics:
//
//	kubelet_pod_start_duration_seconds                    from the agent's first sight of a pod until it runs
//	kubelet_pod_start_total_duration_seconds              from a pod's creation until its containers have started
//	kubelet_pod_start_sli_duration_seconds                that, without pulls of images and init containers
//	kubelet_first_network_pod_start_sli_duration_seconds  that of the first pod with a network of its own
//
// The last three are about pods of a cluster alone, which say when they were
// created; where the source shows the statuses that are published
// (Config.Echoed), a pod has started when the source shows that it has, as
// Kubernetes' objective for pod starts defines it. Pods with volumes other than
// Secrets, ConfigMaps, the downward API, empty and projected ones count in the total
// alone. What ran before the agent did has no start.
//
// Time in which an image is pulled while an init container runs is left out once.
// The part keeps a hundred bytes or so of each pod while the sources want it.
//
// Tier: beta.
package podstart

package podmeta

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// The features that nodes declare and pods need (KEP-5328), with their names in
// Kubernetes 1.37.
const (
	FeatureRestartAllContainers  = "RestartAllContainersOnContainerExits"
	FeatureHostNetworkUserNS     = "UserNamespacesHostNetworkSupport"
	FeatureResizeInitContainers  = "InPlacePodVerticalScalingInitContainers"
	FeatureResizePods            = "InPlacePodLevelResourcesVerticalScaling"
	FeatureWebSocketsToTheServer = "ExtendWebSocketsToKubelet"
)

// FeaturesOf returns the features that a node has to declare to run a pod, sorted.
func FeaturesOf(pod *v1.Pod) (names []string) {
	all := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	restarts := slices.ContainsFunc(all, func(c v1.Container) bool {
		return slices.ContainsFunc(c.RestartPolicyRules, func(r v1.ContainerRestartRule) bool {
			return r.Action == v1.ContainerRestartRuleActionRestartAllContainers
		})
	})
	if restarts {
		names = append(names, FeatureRestartAllContainers)
	}
	if pod.Spec.HostNetwork && pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers {
		names = append(names, FeatureHostNetworkUserNS)
	}
	return names
}

// FeaturesOfUpdate returns the features that a node has to declare so that a running pod can be
// updated from one version (before) to another (after). The names are sorted.
func FeaturesOfUpdate(before, after *v1.Pod) (names []string) {
	if !equality.Semantic.DeepEqual(before.Spec.Resources, after.Spec.Resources) {
		names = append(names, FeatureResizePods)
	}
	for i := range after.Spec.InitContainers {
		is := &after.Spec.InitContainers[i]
		j := slices.IndexFunc(before.Spec.InitContainers, func(c v1.Container) bool { return c.Name == is.Name })
		if j >= 0 && !IsSidecar(is) && !equality.Semantic.DeepEqual(before.Spec.InitContainers[j].Resources, is.Resources) {
			return append(names, FeatureResizeInitContainers)
		}
	}
	return names
}

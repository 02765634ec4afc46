package predicates

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/podmeta"
)

// The features that nodes declare and pods need (KEP-5328), by the names that those of
// Kubernetes 1.37 have.
const (
	RestartAllContainers  = "RestartAllContainersOnContainerExits"
	HostNetworkUserNS     = "UserNamespacesHostNetworkSupport"
	ResizeInitContainers  = "InPlacePodVerticalScalingInitContainers"
	ResizePods            = "InPlacePodLevelResourcesVerticalScaling"
	WebSocketsToTheServer = "ExtendWebSocketsToKubelet"
)

// FeaturesOf lists the features that a node has to declare to run a pod, sorted.
func FeaturesOf(pod *v1.Pod) (names []string) {
	all := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	restarts := slices.ContainsFunc(all, func(c v1.Container) bool {
		return slices.ContainsFunc(c.RestartPolicyRules, func(r v1.ContainerRestartRule) bool {
			return r.Action == v1.ContainerRestartRuleActionRestartAllContainers
		})
	})
	if restarts {
		names = append(names, RestartAllContainers)
	}
	if pod.Spec.HostNetwork && pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers {
		names = append(names, HostNetworkUserNS)
	}
	return names
}

// FeaturesOfUpdate lists the features that a node has to declare to turn a pod that runs
// into another version of it, sorted.
func FeaturesOfUpdate(from, to *v1.Pod) (names []string) {
	if !equality.Semantic.DeepEqual(from.Spec.Resources, to.Spec.Resources) {
		names = append(names, ResizePods)
	}
	for i := range to.Spec.InitContainers {
		is := &to.Spec.InitContainers[i]
		j := slices.IndexFunc(from.Spec.InitContainers, func(c v1.Container) bool { return c.Name == is.Name })
		if j >= 0 && !podmeta.IsSidecar(is) && !equality.Semantic.DeepEqual(from.Spec.InitContainers[j].Resources, is.Resources) {
			return append(names, ResizeInitContainers)
		}
	}
	return names
}

// Undeclared are those of names that the node does not declare.
func (p *Node) Undeclared(names []string) []string {
	if p.Features == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(p.Features, n) })
}

// features rejects pods that need what the node does not declare.
func (p *Node) features(pod *v1.Pod, _ []*v1.Pod) *part.Rejection {
	if p.Features == nil {
		return nil
	}
	lacks := p.Undeclared(FeaturesOf(pod))
	if len(lacks) == 0 {
		return nil
	}
	return &part.Rejection{Reason: "PodFeatureUnsupported", Final: true, Message: "pod needs features that the node does not declare: " + strings.Join(lacks, ", ")}
}

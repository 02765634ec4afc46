package podmeta

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// imageReasons are the kubelet's reasons of the waiting state of a container that waits for its
// image.
var imageReasons = []string{"ErrImageNeverPull", "ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"}

// MissingImages returns the images that containers of a pod wait for, by its status.
func MissingImages(p *v1.Pod) []string {
	waits := func(name string) bool {
		for _, list := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses} {
			for i := range list {
				if s := &list[i]; s.Name == name && s.State.Waiting != nil {
					return slices.Contains(imageReasons, s.State.Waiting.Reason)
				}
			}
		}
		return false
	}
	var out []string
	add := func(name, image string) {
		if waits(name) && !slices.Contains(out, image) {
			out = append(out, image)
		}
	}
	for i := range p.Spec.InitContainers {
		add(p.Spec.InitContainers[i].Name, p.Spec.InitContainers[i].Image)
	}
	for i := range p.Spec.Containers {
		add(p.Spec.Containers[i].Name, p.Spec.Containers[i].Image)
	}
	for i := range p.Spec.EphemeralContainers {
		add(p.Spec.EphemeralContainers[i].Name, p.Spec.EphemeralContainers[i].Image)
	}
	return out
}

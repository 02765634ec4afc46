package main

import (
	"context"

	v1 "k8s.io/api/core/v1"
	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// watchedRuntime tells when the stream of the runtime's events begins and ends:
// it is how the agent learns first that the runtime has come or gone.
type watchedRuntime struct {
	criapi.RuntimeService
	changed func()
}

func (w watchedRuntime) GetContainerEvents(ctx context.Context, ch chan *runtimeapi.ContainerEventResponse, opened func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	began := false
	err := w.RuntimeService.GetContainerEvents(ctx, ch, func(s runtimeapi.RuntimeService_GetContainerEventsClient) {
		began = true
		w.changed()
		if opened != nil {
			opened(s)
		}
	})
	if began {
		w.changed()
	}
	return err
}

// watchedImages tells of images that the agent pulls and removes. Those of others
// are found when the node looks for them.
type watchedImages struct {
	criapi.ImageManagerService
	changed func()
}

func (w watchedImages) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	ref, err := w.ImageManagerService.PullImage(ctx, image, auth, sandbox)
	if err == nil {
		w.changed()
	}
	return ref, err
}

func (w watchedImages) RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error {
	err := w.ImageManagerService.RemoveImage(ctx, image)
	if err == nil {
		w.changed()
	}
	return err
}

// declared are the features that the node tells schedulers and the API server of
// (KEP-5328), by the names that those of Kubernetes 1.36 ask for, in order.
func declared(c *kubeletconfig.KubeletConfiguration) []string {
	features := []string{
		"InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers", "RestartAllContainersOnContainerExits",
	}
	if *c.EnableServer {
		features = append([]string{"ExtendWebSocketsToKubelet"}, features...)
	}
	return features
}

// resources are what the Node object has to give, as the API server tells it.
func (cl *cluster) resources() v1.ResourceList {
	if n, live := cl.node.Node(); n != nil && live {
		return n.Status.Allocatable
	}
	return nil
}

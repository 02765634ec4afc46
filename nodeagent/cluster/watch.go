package cluster

import (
	"context"

	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// watchedRuntime reports when the stream of the runtime's events begins and ends. By this the
// agent detects that the runtime is up or down.
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

// watchedImages reports the images that the agent pulls and removes. Other changes
// are found when the node lists its images.
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

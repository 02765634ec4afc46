package critest

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// unimplemented answers the calls that this runtime does not have with the error Unimplemented, as
// a real runtime does.
type unimplemented struct{}

func notImplemented(method string) error {
	return status.Error(codes.Unimplemented, method+" is not implemented")
}

func (unimplemented) Attach(context.Context, *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	return nil, notImplemented("Attach")
}

func (unimplemented) CheckpointContainer(context.Context, *runtimeapi.CheckpointContainerRequest) error {
	return notImplemented("CheckpointContainer")
}

func (unimplemented) CheckpointPod(context.Context, *runtimeapi.CheckpointPodRequest) error {
	return notImplemented("CheckpointPod")
}

func (unimplemented) RestorePod(context.Context, *runtimeapi.RestorePodRequest) (*runtimeapi.RestorePodResponse, error) {
	return nil, notImplemented("RestorePod")
}

func (unimplemented) PortForward(context.Context, *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return nil, notImplemented("PortForward")
}

func (unimplemented) UpdatePodSandboxResources(context.Context, *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return nil, notImplemented("UpdatePodSandboxResources")
}

func (unimplemented) ListContainerStats(context.Context, *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	return nil, notImplemented("ListContainerStats")
}

func (unimplemented) PodSandboxStats(context.Context, string) (*runtimeapi.PodSandboxStats, error) {
	return nil, notImplemented("PodSandboxStats")
}

func (unimplemented) ListPodSandboxStats(context.Context, *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	return nil, notImplemented("ListPodSandboxStats")
}

func (unimplemented) ListMetricDescriptors(context.Context) ([]*runtimeapi.MetricDescriptor, error) {
	return nil, notImplemented("ListMetricDescriptors")
}

func (unimplemented) ListPodSandboxMetrics(context.Context) ([]*runtimeapi.PodSandboxMetrics, error) {
	return nil, notImplemented("ListPodSandboxMetrics")
}

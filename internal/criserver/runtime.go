// Package criserver serves a container runtime of this process as CRI services over gRPC.
package criserver

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Register adds the CRI services of a runtime and of its images to srv. Call it before srv serves.
// When closing is closed, streams of container events end with UNAVAILABLE. closing may be nil.
func Register(srv *grpc.Server, r criapi.RuntimeService, i criapi.ImageManagerService, closing <-chan struct{}) {
	runtimeapi.RegisterRuntimeServiceServer(srv, &runtimeServer{r: r, closing: closing})
	runtimeapi.RegisterImageServiceServer(srv, &imageServer{i: i})
}

type runtimeServer struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	r       criapi.RuntimeService
	closing <-chan struct{}
}

func (s *runtimeServer) Version(ctx context.Context, q *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return s.r.Version(ctx, q.GetVersion())
}

func (s *runtimeServer) Status(ctx context.Context, q *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return s.r.Status(ctx, q.GetVerbose())
}

func (s *runtimeServer) RuntimeConfig(ctx context.Context, _ *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	return s.r.RuntimeConfig(ctx)
}

func (s *runtimeServer) UpdateRuntimeConfig(ctx context.Context, q *runtimeapi.UpdateRuntimeConfigRequest) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, s.r.UpdateRuntimeConfig(ctx, q.GetRuntimeConfig())
}

func (s *runtimeServer) RunPodSandbox(ctx context.Context, q *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	id, err := s.r.RunPodSandbox(ctx, q.GetConfig(), q.GetRuntimeHandler())
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: id}, err
}

func (s *runtimeServer) StopPodSandbox(ctx context.Context, q *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	return &runtimeapi.StopPodSandboxResponse{}, s.r.StopPodSandbox(ctx, q.GetPodSandboxId())
}

func (s *runtimeServer) RemovePodSandbox(ctx context.Context, q *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	return &runtimeapi.RemovePodSandboxResponse{}, s.r.RemovePodSandbox(ctx, q.GetPodSandboxId())
}

func (s *runtimeServer) PodSandboxStatus(ctx context.Context, q *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	return s.r.PodSandboxStatus(ctx, q.GetPodSandboxId(), q.GetVerbose())
}

func (s *runtimeServer) ListPodSandbox(ctx context.Context, q *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	items, err := s.r.ListPodSandbox(ctx, q.GetFilter())
	return &runtimeapi.ListPodSandboxResponse{Items: items}, err
}

func (s *runtimeServer) StreamPodSandboxes(q *runtimeapi.StreamPodSandboxesRequest, to grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxesResponse]) error {
	items, err := s.r.ListPodSandbox(to.Context(), q.GetFilter())
	return inParts(items, err, func(part []*runtimeapi.PodSandbox) error {
		return to.Send(&runtimeapi.StreamPodSandboxesResponse{PodSandboxes: part})
	})
}

func (s *runtimeServer) UpdatePodSandboxResources(ctx context.Context, q *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return s.r.UpdatePodSandboxResources(ctx, q)
}

func (s *runtimeServer) CreateContainer(ctx context.Context, q *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	id, err := s.r.CreateContainer(ctx, q.GetPodSandboxId(), q.GetConfig(), q.GetSandboxConfig())
	return &runtimeapi.CreateContainerResponse{ContainerId: id}, err
}

func (s *runtimeServer) StartContainer(ctx context.Context, q *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	return &runtimeapi.StartContainerResponse{}, s.r.StartContainer(ctx, q.GetContainerId())
}

func (s *runtimeServer) StopContainer(ctx context.Context, q *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	return &runtimeapi.StopContainerResponse{}, s.r.StopContainer(ctx, q.GetContainerId(), q.GetTimeout())
}

func (s *runtimeServer) RemoveContainer(ctx context.Context, q *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	return &runtimeapi.RemoveContainerResponse{}, s.r.RemoveContainer(ctx, q.GetContainerId())
}

func (s *runtimeServer) ListContainers(ctx context.Context, q *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	items, err := s.r.ListContainers(ctx, q.GetFilter())
	return &runtimeapi.ListContainersResponse{Containers: items}, err
}

func (s *runtimeServer) StreamContainers(q *runtimeapi.StreamContainersRequest, to grpc.ServerStreamingServer[runtimeapi.StreamContainersResponse]) error {
	items, err := s.r.ListContainers(to.Context(), q.GetFilter())
	return inParts(items, err, func(part []*runtimeapi.Container) error {
		return to.Send(&runtimeapi.StreamContainersResponse{Containers: part})
	})
}

func (s *runtimeServer) ContainerStatus(ctx context.Context, q *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	return s.r.ContainerStatus(ctx, q.GetContainerId(), q.GetVerbose())
}

func (s *runtimeServer) UpdateContainerResources(ctx context.Context, q *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	to := &runtimeapi.ContainerResources{Linux: q.GetLinux(), Windows: q.GetWindows()}
	return &runtimeapi.UpdateContainerResourcesResponse{}, s.r.UpdateContainerResources(ctx, q.GetContainerId(), to)
}

func (s *runtimeServer) ReopenContainerLog(ctx context.Context, q *runtimeapi.ReopenContainerLogRequest) (*runtimeapi.ReopenContainerLogResponse, error) {
	return &runtimeapi.ReopenContainerLogResponse{}, s.r.ReopenContainerLog(ctx, q.GetContainerId())
}

func (s *runtimeServer) CheckpointContainer(ctx context.Context, q *runtimeapi.CheckpointContainerRequest) (*runtimeapi.CheckpointContainerResponse, error) {
	return &runtimeapi.CheckpointContainerResponse{}, s.r.CheckpointContainer(ctx, q)
}

func (s *runtimeServer) CheckpointPod(ctx context.Context, q *runtimeapi.CheckpointPodRequest) (*runtimeapi.CheckpointPodResponse, error) {
	return &runtimeapi.CheckpointPodResponse{}, s.r.CheckpointPod(ctx, q)
}

func (s *runtimeServer) RestorePod(ctx context.Context, q *runtimeapi.RestorePodRequest) (*runtimeapi.RestorePodResponse, error) {
	return s.r.RestorePod(ctx, q)
}

// ExecSync returns a command's exit status in the response. The Go interface of the runtime
// returns the exit status as an error.
func (s *runtimeServer) ExecSync(ctx context.Context, q *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	const longest = int64(1<<63-1) / int64(time.Second)
	timeout := time.Duration(min(q.GetTimeout(), longest)) * time.Second
	stdout, stderr, err := s.r.ExecSync(ctx, q.GetContainerId(), q.GetCmd(), timeout)
	out := &runtimeapi.ExecSyncResponse{Stdout: stdout, Stderr: stderr}
	if code, ok := exitCode(err); ok {
		out.ExitCode, err = code, nil
	}
	return out, err
}

// exitCode returns the exit status that an error of localcri, cri or os/exec contains. It returns
// false for other errors.
func exitCode(err error) (int32, bool) {
	var byStatus interface{ ExitStatus() int }
	if errors.As(err, &byStatus) {
		return int32(byStatus.ExitStatus()), true
	}
	var byCode interface{ ExitCode() int }
	if errors.As(err, &byCode) {
		return int32(byCode.ExitCode()), true
	}
	return 0, false
}

func (s *runtimeServer) ContainerStats(ctx context.Context, q *runtimeapi.ContainerStatsRequest) (*runtimeapi.ContainerStatsResponse, error) {
	stats, err := s.r.ContainerStats(ctx, q.GetContainerId())
	return &runtimeapi.ContainerStatsResponse{Stats: stats}, err
}

func (s *runtimeServer) ListContainerStats(ctx context.Context, q *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error) {
	stats, err := s.r.ListContainerStats(ctx, q.GetFilter())
	return &runtimeapi.ListContainerStatsResponse{Stats: stats}, err
}

func (s *runtimeServer) StreamContainerStats(q *runtimeapi.StreamContainerStatsRequest, to grpc.ServerStreamingServer[runtimeapi.StreamContainerStatsResponse]) error {
	stats, err := s.r.ListContainerStats(to.Context(), q.GetFilter())
	return inParts(stats, err, func(part []*runtimeapi.ContainerStats) error {
		return to.Send(&runtimeapi.StreamContainerStatsResponse{ContainerStats: part})
	})
}

func (s *runtimeServer) PodSandboxStats(ctx context.Context, q *runtimeapi.PodSandboxStatsRequest) (*runtimeapi.PodSandboxStatsResponse, error) {
	stats, err := s.r.PodSandboxStats(ctx, q.GetPodSandboxId())
	return &runtimeapi.PodSandboxStatsResponse{Stats: stats}, err
}

func (s *runtimeServer) ListPodSandboxStats(ctx context.Context, q *runtimeapi.ListPodSandboxStatsRequest) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	stats, err := s.r.ListPodSandboxStats(ctx, q.GetFilter())
	return &runtimeapi.ListPodSandboxStatsResponse{Stats: stats}, err
}

func (s *runtimeServer) StreamPodSandboxStats(q *runtimeapi.StreamPodSandboxStatsRequest, to grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxStatsResponse]) error {
	stats, err := s.r.ListPodSandboxStats(to.Context(), q.GetFilter())
	return inParts(stats, err, func(part []*runtimeapi.PodSandboxStats) error {
		return to.Send(&runtimeapi.StreamPodSandboxStatsResponse{PodSandboxStats: part})
	})
}

func (s *runtimeServer) ListMetricDescriptors(ctx context.Context, _ *runtimeapi.ListMetricDescriptorsRequest) (*runtimeapi.ListMetricDescriptorsResponse, error) {
	all, err := s.r.ListMetricDescriptors(ctx)
	return &runtimeapi.ListMetricDescriptorsResponse{Descriptors: all}, err
}

func (s *runtimeServer) ListPodSandboxMetrics(ctx context.Context, _ *runtimeapi.ListPodSandboxMetricsRequest) (*runtimeapi.ListPodSandboxMetricsResponse, error) {
	all, err := s.r.ListPodSandboxMetrics(ctx)
	return &runtimeapi.ListPodSandboxMetricsResponse{PodMetrics: all}, err
}

func (s *runtimeServer) StreamPodSandboxMetrics(_ *runtimeapi.StreamPodSandboxMetricsRequest, to grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxMetricsResponse]) error {
	all, err := s.r.ListPodSandboxMetrics(to.Context())
	return inParts(all, err, func(part []*runtimeapi.PodSandboxMetrics) error {
		return to.Send(&runtimeapi.StreamPodSandboxMetricsResponse{PodSandboxMetrics: part})
	})
}

// GetContainerEvents sends events until the client, the runtime or the server ends the stream. It
// sends the response header when the runtime has begun to collect events. A client that lists
// containers after the header misses no event.
func (s *runtimeServer) GetContainerEvents(_ *runtimeapi.GetEventsRequest, to grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	ctx, cancel := context.WithCancel(to.Context())
	defer cancel()
	events, collected := make(chan *runtimeapi.ContainerEventResponse), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- status.Errorf(codes.Internal, "GetContainerEvents panicked: %v", p)
			}
		}()
		done <- s.r.GetContainerEvents(ctx, events, func(runtimeapi.RuntimeService_GetContainerEventsClient) {
			select {
			case collected <- struct{}{}:
			case <-ctx.Done():
			}
		})
	}()
	for {
		select {
		case <-collected:
			if err := to.SendHeader(metadata.MD{}); err != nil {
				return err
			}
		case e, ok := <-events:
			if !ok {
				events = nil // done delivers the reason
				continue
			}
			if err := to.Send(e); err != nil {
				return err
			}
		case err := <-done:
			if errors.Is(err, io.EOF) {
				return nil // the runtime ended the stream
			}
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.closing:
			return status.Error(codes.Unavailable, "the server is stopping")
		}
	}
}

func (s *runtimeServer) Exec(ctx context.Context, q *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return s.r.Exec(ctx, q)
}

func (s *runtimeServer) Attach(ctx context.Context, q *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	return s.r.Attach(ctx, q)
}

func (s *runtimeServer) PortForward(ctx context.Context, q *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return s.r.PortForward(ctx, q)
}

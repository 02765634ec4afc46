package critest

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri"
)

// Client serves the runtime over gRPC in memory and returns a client of it.
// Both end with the test.
func (r *Runtime) Client(t testing.TB) *cri.Client {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	t.Cleanup(r.Serve(l))
	c, err := cri.New(cri.Config{
		Endpoint: "/bufconn",
		Dialer:   func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// Serve serves the runtime over gRPC until stop is called. With interceptors in opts a test can
// change answers, to simulate a runtime that returns wrong ones.
func (r *Runtime) Serve(l net.Listener, opts ...grpc.ServerOption) (stop func()) {
	srv := grpc.NewServer(append([]grpc.ServerOption{grpc.MaxRecvMsgSize(256 << 20), grpc.MaxSendMsgSize(256 << 20)}, opts...)...)
	runtimeapi.RegisterRuntimeServiceServer(srv, &runtimeServer{r: r})
	runtimeapi.RegisterImageServiceServer(srv, &imageServer{r: r})
	go func() { _ = srv.Serve(l) }()
	return srv.Stop
}

// runtimeServer is the gRPC RuntimeService of a Runtime.
type runtimeServer struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	r *Runtime
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

func (s *runtimeServer) ContainerStatus(ctx context.Context, q *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	return s.r.ContainerStatus(ctx, q.GetContainerId(), q.GetVerbose())
}

func (s *runtimeServer) UpdateContainerResources(ctx context.Context, q *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	return &runtimeapi.UpdateContainerResourcesResponse{}, s.r.UpdateContainerResources(ctx, q.GetContainerId(), &runtimeapi.ContainerResources{Linux: q.GetLinux()})
}

func (s *runtimeServer) ReopenContainerLog(ctx context.Context, q *runtimeapi.ReopenContainerLogRequest) (*runtimeapi.ReopenContainerLogResponse, error) {
	return &runtimeapi.ReopenContainerLogResponse{}, s.r.ReopenContainerLog(ctx, q.GetContainerId())
}

func (s *runtimeServer) Exec(ctx context.Context, q *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return s.r.Exec(ctx, q)
}

func (s *runtimeServer) ContainerStats(ctx context.Context, q *runtimeapi.ContainerStatsRequest) (*runtimeapi.ContainerStatsResponse, error) {
	st, err := s.r.ContainerStats(ctx, q.GetContainerId())
	return &runtimeapi.ContainerStatsResponse{Stats: st}, err
}

func (s *runtimeServer) ExecSync(ctx context.Context, q *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	out, errOut, err := s.r.ExecSync(ctx, q.GetContainerId(), q.GetCmd(), time.Duration(q.GetTimeout())*time.Second)
	return &runtimeapi.ExecSyncResponse{Stdout: out, Stderr: errOut}, err
}

func (s *runtimeServer) GetContainerEvents(_ *runtimeapi.GetEventsRequest, stream runtimeapi.RuntimeService_GetContainerEventsServer) error {
	ch := make(chan *runtimeapi.ContainerEventResponse)
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	go func() { done <- s.r.GetContainerEvents(ctx, ch, nil) }()
	for {
		select {
		case ev := <-ch:
			if err := stream.Send(ev); err != nil {
				return err
			}
		case err := <-done:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// imageServer is the gRPC ImageService of a Runtime.
type imageServer struct {
	runtimeapi.UnimplementedImageServiceServer
	r *Runtime
}

func (s *imageServer) ListImages(ctx context.Context, q *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	items, err := s.r.ListImages(ctx, q.GetFilter())
	return &runtimeapi.ListImagesResponse{Images: items}, err
}

func (s *imageServer) ImageStatus(ctx context.Context, q *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	return s.r.ImageStatus(ctx, q.GetImage(), q.GetVerbose())
}

func (s *imageServer) PullImage(ctx context.Context, q *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	ref, err := s.r.PullImage(ctx, q.GetImage(), q.GetAuth(), q.GetSandboxConfig())
	return &runtimeapi.PullImageResponse{ImageRef: ref}, err
}

func (s *imageServer) RemoveImage(ctx context.Context, q *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	return &runtimeapi.RemoveImageResponse{}, s.r.RemoveImage(ctx, q.GetImage())
}

package criserver

import (
	"context"

	"google.golang.org/grpc"
	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type imageServer struct {
	runtimeapi.UnimplementedImageServiceServer
	i criapi.ImageManagerService
}

func (s *imageServer) ListImages(ctx context.Context, q *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	images, err := s.i.ListImages(ctx, q.GetFilter())
	return &runtimeapi.ListImagesResponse{Images: images}, err
}

func (s *imageServer) StreamImages(q *runtimeapi.StreamImagesRequest, to grpc.ServerStreamingServer[runtimeapi.StreamImagesResponse]) error {
	images, err := s.i.ListImages(to.Context(), q.GetFilter())
	return inParts(images, err, func(part []*runtimeapi.Image) error { return to.Send(&runtimeapi.StreamImagesResponse{Images: part}) })
}

func (s *imageServer) ImageStatus(ctx context.Context, q *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	return s.i.ImageStatus(ctx, q.GetImage(), q.GetVerbose())
}

func (s *imageServer) PullImage(ctx context.Context, q *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	ref, err := s.i.PullImage(ctx, q.GetImage(), q.GetAuth(), q.GetSandboxConfig())
	return &runtimeapi.PullImageResponse{ImageRef: ref}, err
}

func (s *imageServer) RemoveImage(ctx context.Context, q *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	return &runtimeapi.RemoveImageResponse{}, s.i.RemoveImage(ctx, q.GetImage())
}

func (s *imageServer) ImageFsInfo(ctx context.Context, _ *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	return s.i.ImageFsInfo(ctx)
}

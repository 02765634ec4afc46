package criruntimetest

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// AddImage puts images on the node.
func (r *Runtime) AddImage(names ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range names {
		r.images[n] = r.newImage(n)
	}
}

// OfferImage puts images into the registry, from where they can be pulled.
func (r *Runtime) OfferImage(names ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range names {
		r.registry[n] = r.newImage(n)
	}
}

func (r *Runtime) newImage(name string) *runtimeapi.Image {
	return &runtimeapi.Image{
		Id: "sha256:" + r.newID(), RepoTags: []string{name}, Size: 1 << 20, Uid: &runtimeapi.Int64Value{Value: 0},
	}
}

// findImage finds an image by its name or its ID.
func (r *Runtime) findImage(ref string) *runtimeapi.Image {
	if i := r.images[ref]; i != nil {
		return i
	}
	for _, i := range r.images {
		if i.GetId() == ref {
			return i
		}
	}
	return nil
}

// ListImages lists the images on the node.
func (r *Runtime) ListImages(ctx context.Context, f *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	leave, err := r.enter(ctx, "ListImages", "")
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*runtimeapi.Image
	for name, i := range r.images {
		if want := f.GetImage().GetImage(); want == "" || want == name || want == i.GetId() {
			out = append(out, i)
		}
	}
	return out, leave()
}

// ImageStatus tells of an image, or nothing of one that is not there.
func (r *Runtime) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, _ bool) (*runtimeapi.ImageStatusResponse, error) {
	leave, err := r.enter(ctx, "ImageStatus", image.GetImage())
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return &runtimeapi.ImageStatusResponse{Image: r.findImage(image.GetImage())}, leave()
}

// PullImage takes an image from the registry.
func (r *Runtime) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, _ *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	leave, err := r.enter(ctx, "PullImage", image.GetImage())
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	i := r.registry[image.GetImage()]
	if i != nil {
		r.images[image.GetImage()] = i
	}
	r.mu.Unlock()
	if i == nil {
		return "", status.Errorf(codes.NotFound, "failed to pull image %q: not found", image.GetImage())
	}
	return i.GetId(), leave()
}

// RemoveImage removes an image.
func (r *Runtime) RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error {
	leave, err := r.enter(ctx, "RemoveImage", image.GetImage())
	if err != nil {
		return err
	}
	r.mu.Lock()
	for name, i := range r.images {
		if name == image.GetImage() || i.GetId() == image.GetImage() {
			delete(r.images, name)
		}
	}
	r.mu.Unlock()
	return leave()
}

// SetImageFS tells where the images' file system is, from then on.
func (r *Runtime) SetImageFS(mountpoint string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.imageFS = mountpoint
}

// ImageFsInfo tells of a disk without images, where SetImageFS said, or of none.
func (r *Runtime) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	leave, err := r.enter(ctx, "ImageFsInfo", "")
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.imageFS == "" {
		return &runtimeapi.ImageFsInfoResponse{}, leave()
	}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{
		{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: r.imageFS}, UsedBytes: &runtimeapi.UInt64Value{}},
	}}, leave()
}

package critest

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// AddImage puts images on the node. A name that exists already moves to the new image.
func (r *Runtime) AddImage(names ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range names {
		r.put(r.newImage(n))
	}
}

// OfferImage puts images into the registry, from which they can be pulled. A name that exists
// already moves to the new image.
func (r *Runtime) OfferImage(names ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range names {
		r.registry[n] = r.newImage(n)
	}
}

// OfferAll makes the pull of every name succeed.
func (r *Runtime) OfferAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.anyImage = true
}

func (r *Runtime) newImage(name string) *runtimeapi.Image {
	return &runtimeapi.Image{
		Id: "sha256:" + r.newID(), RepoTags: []string{name}, Size: 1 << 20, Uid: &runtimeapi.Int64Value{Value: 0},
	}
}

// put puts an image on the node. Another image that had its name stays without the name. An image
// on the node is never changed, since callers may have it; it is replaced.
func (r *Runtime) put(i *runtimeapi.Image) {
	for id, o := range r.images {
		if id != i.GetId() && slices.Contains(o.GetRepoTags(), i.GetRepoTags()[0]) {
			o = proto.Clone(o).(*runtimeapi.Image)
			o.RepoTags = slices.DeleteFunc(o.RepoTags, func(t string) bool { return t == i.GetRepoTags()[0] })
			r.images[id] = o
		}
	}
	r.images[i.GetId()] = i
}

// findImage finds an image by its name or its ID.
func (r *Runtime) findImage(ref string) *runtimeapi.Image {
	if i := r.images[ref]; i != nil {
		return i
	}
	for _, i := range r.images {
		if slices.Contains(i.GetRepoTags(), ref) {
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
	want := f.GetImage().GetImage()
	only := r.findImage(want)
	for _, i := range r.images {
		if want == "" || i == only {
			out = append(out, i)
		}
	}
	return out, leave()
}

// ImageStatus returns the status of an image. The answer for a missing image has no image.
func (r *Runtime) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, _ bool) (*runtimeapi.ImageStatusResponse, error) {
	leave, err := r.enter(ctx, "ImageStatus", image.GetImage())
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return &runtimeapi.ImageStatusResponse{Image: r.findImage(image.GetImage())}, leave()
}

// PullImage copies an image from the registry to the node.
func (r *Runtime) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, _ *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	leave, err := r.enter(ctx, "PullImage", image.GetImage())
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	i := r.registry[image.GetImage()]
	if i == nil && r.anyImage {
		i = r.newImage(image.GetImage())
	}
	if i != nil {
		r.put(i)
	}
	r.mu.Unlock()
	if i == nil {
		return "", status.Errorf(codes.NotFound, "failed to pull image %q: not found", image.GetImage())
	}
	return i.GetId(), leave()
}

// RemoveImage removes an image with all its names. It is not an error if the image does not
// exist.
func (r *Runtime) RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error {
	leave, err := r.enter(ctx, "RemoveImage", image.GetImage())
	if err != nil {
		return err
	}
	r.mu.Lock()
	if i := r.findImage(image.GetImage()); i != nil {
		delete(r.images, i.GetId())
	}
	r.mu.Unlock()
	return leave()
}

// SetImageFS sets the mount point that ImageFsInfo reports from now on.
func (r *Runtime) SetImageFS(mountpoint string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.imageFS = mountpoint
}

// ImageFsInfo reports an empty file system of images at the path of SetImageFS, or no file system.
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

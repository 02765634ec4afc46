package cri

import (
	"context"
	"errors"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ListImages lists the images that pass the filter.
func (c *Client) ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	resp, err := call(ctx, c, "list_images", c.timeout, c.images.ListImages, &runtimeapi.ListImagesRequest{Filter: filter}, forList)
	return resp.GetImages(), err
}

// ImageStatus returns the status of an image. A response without an image means that the runtime
// does not have it.
func (c *Client) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.ImageStatusResponse, error) {
	return call(ctx, c, "image_status", c.timeout, c.images.ImageStatus, &runtimeapi.ImageStatusRequest{Image: image, Verbose: verbose})
}

// PullImage pulls an image and returns the reference to create containers with. Only ctx limits its
// time.
func (c *Client) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	resp, err := call(ctx, c, "pull_image", 0, c.images.PullImage,
		&runtimeapi.PullImageRequest{Image: image, Auth: auth, SandboxConfig: sandbox})
	if err != nil {
		return "", err
	}
	if resp.GetImageRef() == "" {
		return "", errors.New("pull_image: the runtime returned no reference for image " + image.GetImage())
	}
	return resp.GetImageRef(), nil
}

// RemoveImage removes an image. It is not an error if the image does not exist.
func (c *Client) RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error {
	_, err := call(ctx, c, "remove_image", c.timeout, c.images.RemoveImage, &runtimeapi.RemoveImageRequest{Image: image})
	return err
}

// ImageFsInfo returns the usage of the image file systems.
func (c *Client) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return call(ctx, c, "image_fs_info", c.timeout, c.images.ImageFsInfo, &runtimeapi.ImageFsInfoRequest{})
}

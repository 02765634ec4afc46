package crigc

import (
	"context"
	"errors"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/gc"
	"github.com/nodewright/nodewright/internal/detached"
)

// Images of a CRI runtime and their disk, for the image collector. Dead containers use their
// images too.

// ImageService is the part of an image service that [Images] uses; *cri.Client implements it.
type ImageService interface {
	ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error)
	RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error
	ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
}

// ContainerLister is the part of a container runtime that [Images] uses; *cri.Client implements
// it.
type ContainerLister interface {
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error)
}

// Images is a gc.ImageStore over a CRI runtime. Its methods may be called from any goroutine.
type Images struct {
	images   ImageService
	rt       ContainerLister
	statuses statuses
	statfs   func(path string) (capacity, available int64, err error)
	disks    detached.Group[size] // statfs calls that may hang
}

var _ gc.ImageStore = (*Images)(nil)

// diskTime is the timeout of statfs.
const diskTime = 10 * time.Second

// size is the size of a file system, in bytes.
type size struct{ capacity, available int64 }

// NewImages returns an Images.
func NewImages(images ImageService, rt ContainerLister) *Images {
	return &Images{images: images, rt: rt, statuses: statuses{ask: rt.ContainerStatus}, statfs: statfs}
}

// Images lists all images.
func (s *Images) Images(ctx context.Context) ([]gc.Image, error) {
	list, err := s.images.ListImages(ctx, nil)
	if err != nil {
		return nil, err
	}
	out := make([]gc.Image, 0, len(list))
	for _, i := range list {
		out = append(out, gc.Image{
			ID: i.GetId(), Handler: i.GetSpec().GetRuntimeHandler(), Tags: i.GetRepoTags(), Digests: i.GetRepoDigests(),
			Size: int64(i.GetSize()), Pinned: i.GetPinned(),
		})
	}
	return out, nil
}

// Uses lists the images that containers run or mount. It fails if the status of a container
// cannot be read: its images could be removed.
func (s *Images) Uses(ctx context.Context) ([]gc.ImageUse, error) {
	list, err := s.rt.ListContainers(ctx, nil)
	if err != nil {
		return nil, err
	}
	known, err := s.statuses.of(ctx, list, "", func(*runtimeapi.Container) bool { return true })
	if err != nil {
		return nil, err
	}
	out := make([]gc.ImageUse, 0, len(list))
	for _, c := range list {
		l := c.GetLabels()
		u := gc.ImageUse{
			Image: c.GetImageId(), Handler: c.GetImage().GetRuntimeHandler(),
			By: l[cri.LabelPodNamespace] + "/" + l[cri.LabelPodName] + "/" + l[cri.LabelContainerName],
		}
		if u.Image != "" {
			out = append(out, u)
		} else { // of a runtime before CRI 1.30: one of these is a name of it
			for _, name := range []string{c.GetImageRef(), c.GetImage().GetImage()} {
				if u.Image = name; name != "" {
					out = append(out, u)
				}
			}
		}
		for _, image := range known[c.GetId()].mounts {
			u.Image = image
			out = append(out, u)
		}
	}
	return out, nil
}

// Disk returns the usage of the file system of images, in bytes. The runtime reports the file
// system's path and the size of all images; the kernel reports the capacity and the available
// space. Disk blocks for the runtime's call plus at most diskTime.
func (s *Images) Disk(ctx context.Context) (gc.ImageDisk, error) {
	resp, err := s.images.ImageFsInfo(ctx)
	if err != nil {
		return gc.ImageDisk{}, err
	}
	all := resp.GetImageFilesystems()
	if len(all) == 0 || all[0].GetFsId().GetMountpoint() == "" {
		return gc.ImageDisk{}, errors.New("the runtime does not report the file system of images")
	}
	// Runtimes list one file system of images; the kubelet uses the first too.
	d := gc.ImageDisk{Images: int64(all[0].GetUsedBytes().GetValue())}
	path := all[0].GetFsId().GetMountpoint()
	ctx, cancel := context.WithTimeout(ctx, diskTime)
	defer cancel()
	size, err := s.disks.Do(ctx, path, func() (size size, err error) {
		size.capacity, size.available, err = s.statfs(path)
		return size, err
	})
	if err != nil {
		return gc.ImageDisk{}, fmt.Errorf("file system of images: %w", err)
	}
	d.Capacity, d.Available = size.capacity, size.available
	return d, nil
}

// Remove removes an image. A missing image is a success. handler is the runtime handler, or ""
// for the default handler.
func (s *Images) Remove(ctx context.Context, id, handler string) error {
	err := s.images.RemoveImage(ctx, &runtimeapi.ImageSpec{Image: id, RuntimeHandler: handler})
	if cri.IsNotFound(err) {
		return nil
	}
	return err
}

package plugins

import (
	"context"

	"github.com/nodewright/nodewright/volumemgr"
)

// Image stands for volumes that the container runtime mounts from
// images. There is nothing on disk to make or to remove: the image is pulled,
// and named in the container's mount, by whoever makes containers.
//
//	p := plugins.NewImage()
//	// p is a volumemgr.Plugin
type Image struct{}

// NewImage makes a Plugin.
func NewImage() *Image { return &Image{} }

// Name is "kubernetes.io/image".
func (*Image) Name() string { return "kubernetes.io/image" }

// Supports reports whether spec is an image.
func (*Image) Supports(spec *volumemgr.Spec) bool {
	return spec.Volume != nil && spec.Volume.Image != nil
}

// SetUp has no path to give, and the volume is read-only.
func (*Image) SetUp(context.Context, *volumemgr.Volume) (volumemgr.Result, error) {
	return volumemgr.Result{ReadOnly: true}, nil
}

// TearDown does nothing.
func (*Image) TearDown(context.Context, *volumemgr.Volume) error { return nil }

// Measure has nothing to measure.
func (*Image) Measure(context.Context, *volumemgr.Volume) (volumemgr.Usage, error) {
	return volumemgr.Usage{}, volumemgr.ErrNoUsage
}

package plugins

import (
	"context"

	"github.com/nodewright/nodewright/volumemgr"
)

// imagePlugin stands for volumes that the container runtime mounts from
// images. There is nothing on disk to make or to remove: the image is pulled,
// and named in the container's mount, by whoever makes containers.
//
//	p := newImage()
//	// p is a volumemgr.Plugin
type imagePlugin struct{}

// newImage makes a Plugin.
func newImage() *imagePlugin { return &imagePlugin{} }

// Name is "kubernetes.io/image".
func (*imagePlugin) Name() string { return "kubernetes.io/image" }

// Supports reports whether spec is an image.
func (*imagePlugin) Supports(spec *volumemgr.Spec) bool {
	return spec.Volume != nil && spec.Volume.Image != nil
}

// SetUp has no path to give, and the volume is read-only.
func (*imagePlugin) SetUp(context.Context, *volumemgr.Volume) (volumemgr.Result, error) {
	return volumemgr.Result{ReadOnly: true}, nil
}

// TearDown does nothing.
func (*imagePlugin) TearDown(context.Context, *volumemgr.Volume) error { return nil }

// Measure has nothing to measure.
func (*imagePlugin) Measure(context.Context, *volumemgr.Volume) (volumemgr.Usage, error) {
	return volumemgr.Usage{}, volumemgr.ErrNoUsage
}

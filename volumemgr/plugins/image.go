package plugins

import (
	"context"

	"github.com/nodewright/nodewright/volumemgr"
)

// imagePlugin implements image volumes. The container runtime mounts them: the container's mount
// names the image, which is pulled with the images of containers. There is nothing to create or
// remove on disk.
//
//	p := newImage()
//	// p is a volumemgr.Plugin
type imagePlugin struct{}

// newImage returns the plugin of image volumes.
func newImage() *imagePlugin { return &imagePlugin{} }

// Name returns "kubernetes.io/image".
func (*imagePlugin) Name() string { return "kubernetes.io/image" }

// Supports reports whether spec is an image.
func (*imagePlugin) Supports(spec *volumemgr.Spec) bool {
	return spec.Volume != nil && spec.Volume.Image != nil
}

// SetUp returns no path, and that the volume is read-only.
func (*imagePlugin) SetUp(context.Context, *volumemgr.Volume) (volumemgr.Result, error) {
	return volumemgr.Result{ReadOnly: true}, nil
}

// TearDown does nothing.
func (*imagePlugin) TearDown(context.Context, *volumemgr.Volume) error { return nil }

// Measure returns ErrNoUsage.
func (*imagePlugin) Measure(context.Context, *volumemgr.Volume) (volumemgr.Usage, error) {
	return volumemgr.Usage{}, volumemgr.ErrNoUsage
}

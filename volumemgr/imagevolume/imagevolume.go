// Package imagevolume stands for volumes that the container runtime mounts from
// images. There is nothing on disk to make or to remove: the image is pulled,
// and named in the container's mount, by whoever makes containers.
//
//	p := imagevolume.New()
//	// p is a volumemgr.Plugin
package imagevolume

import (
	"context"

	"github.com/nodewright/nodewright/volumemgr"
)

// Plugin makes image volumes.
type Plugin struct{}

// New makes a Plugin.
func New() *Plugin { return &Plugin{} }

// Name is "kubernetes.io/image".
func (*Plugin) Name() string { return "kubernetes.io/image" }

// Supports reports whether spec is an image.
func (*Plugin) Supports(spec *volumemgr.Spec) bool {
	return spec.Volume != nil && spec.Volume.Image != nil
}

// SetUp has no path to give, and the volume is read-only.
func (*Plugin) SetUp(context.Context, *volumemgr.Volume) (volumemgr.Result, error) {
	return volumemgr.Result{ReadOnly: true}, nil
}

// TearDown does nothing.
func (*Plugin) TearDown(context.Context, *volumemgr.Volume) error { return nil }

// Measure has nothing to measure.
func (*Plugin) Measure(context.Context, *volumemgr.Volume) (volumemgr.Usage, error) {
	return volumemgr.Usage{}, volumemgr.ErrNoUsage
}

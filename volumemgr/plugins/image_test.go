package plugins

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/volumemgr"
)

func TestImagePlugin(t *testing.T) {
	p := newImage()
	image := &volumemgr.Spec{Volume: &v1.Volume{VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "x"}}}}
	if !p.Supports(image) || p.Supports(&volumemgr.Spec{Volume: &v1.Volume{}}) || p.Supports(&volumemgr.Spec{PersistentVolume: &v1.PersistentVolume{}}) {
		t.Error("supports the wrong kind")
	}
	if r, err := p.SetUp(t.Context(), &volumemgr.Volume{Spec: image}); err != nil || r != (volumemgr.Result{ReadOnly: true}) {
		t.Errorf("%+v (%v)", r, err)
	}
	if _, err := p.Measure(t.Context(), nil); !errors.Is(err, volumemgr.ErrNoUsage) {
		t.Error(err)
	}
	if err := p.TearDown(t.Context(), &volumemgr.Volume{}); err != nil {
		t.Error(err)
	}
}

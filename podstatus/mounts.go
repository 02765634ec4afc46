package podstatus

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
)

// maxImageRef is how long the API lets the reference of a mounted image be.
const maxImageRef = 256

// volumeMounts returns what became of a container's mounts: whether they are
// read-only all the way down (KEP-3857), and which image is mounted (KEP-4639).
func volumeMounts(c *v1.Container, o *observed.Container) []v1.VolumeMountStatus {
	if len(c.VolumeMounts) == 0 {
		return nil
	}
	out := make([]v1.VolumeMountStatus, 0, len(c.VolumeMounts))
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		st := v1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		// A relative path is one below the container's root, and the runtime shows
		// it so.
		path := "/" + strings.TrimPrefix(m.MountPath, "/")
		var shown observed.Mount
		if j := slices.IndexFunc(o.Mounts, func(s observed.Mount) bool { return s.Path == path }); j >= 0 {
			shown = o.Mounts[j]
		}
		// The API has the field for read-only mounts alone.
		if m.ReadOnly {
			st.RecursiveReadOnly = recursiveReadOnly(m.RecursiveReadOnly, shown.RecursiveReadOnly)
		}
		// The API wants a digest; a name may mean another image tomorrow.
		if strings.Contains(shown.ImageRef, "sha256:") && len(shown.ImageRef) <= maxImageRef {
			st.VolumeStatus = &v1.VolumeStatus{Image: &v1.ImageVolumeStatus{ImageRef: shown.ImageRef}}
		}
		out = append(out, st)
	}
	return out
}

// recursiveReadOnly is what came of the mode that was asked for. A mount that
// had to be so is: else there would be no container.
func recursiveReadOnly(asked *v1.RecursiveReadOnlyMode, shown bool) *v1.RecursiveReadOnlyMode {
	mode := v1.RecursiveReadOnlyDisabled
	if shown || asked != nil && *asked == v1.RecursiveReadOnlyEnabled {
		mode = v1.RecursiveReadOnlyEnabled
	}
	return &mode
}

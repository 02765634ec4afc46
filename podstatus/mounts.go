package podstatus

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
)

// maxImageRef is the API's limit for the reference of a mounted image, in bytes.
const maxImageRef = 256

// volumeMounts returns the statuses of a container's mounts: whether they are recursively
// read-only (KEP-3857), and which image is mounted (KEP-4639).
func volumeMounts(c *v1.Container, o *observed.Container) []v1.VolumeMountStatus {
	if len(c.VolumeMounts) == 0 {
		return nil
	}
	out := make([]v1.VolumeMountStatus, 0, len(c.VolumeMounts))
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		st := v1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		// The runtime reports absolute paths. A relative path of a mount is below the root.
		path := "/" + strings.TrimPrefix(m.MountPath, "/")
		var shown observed.Mount
		if j := slices.IndexFunc(o.Mounts, func(s observed.Mount) bool { return s.Path == path }); j >= 0 {
			shown = o.Mounts[j]
		}
		// The API has the field only for read-only mounts.
		if m.ReadOnly {
			st.RecursiveReadOnly = recursiveReadOnly(m.RecursiveReadOnly, shown.RecursiveReadOnly)
		}
		// The API requires a digest, since a name may refer to another image later.
		if strings.Contains(shown.ImageRef, "sha256:") && len(shown.ImageRef) <= maxImageRef {
			st.VolumeStatus = &v1.VolumeStatus{Image: &v1.ImageVolumeStatus{ImageRef: shown.ImageRef}}
		}
		out = append(out, st)
	}
	return out
}

// recursiveReadOnly returns the effective mode of a mount. If the mount requests the mode
// Enabled, it has this mode: otherwise the runtime would not have created the container.
func recursiveReadOnly(requested *v1.RecursiveReadOnlyMode, shown bool) *v1.RecursiveReadOnlyMode {
	mode := v1.RecursiveReadOnlyDisabled
	if shown || requested != nil && *requested == v1.RecursiveReadOnlyEnabled {
		mode = v1.RecursiveReadOnlyEnabled
	}
	return &mode
}

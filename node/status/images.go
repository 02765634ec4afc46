package status

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// namesPerImage limits the names that are shown of one image, as in the kubelet. An image may have
// hundreds of tags, and a status must not exceed the size limit of an object.
const namesPerImage = 5

// showImages returns the images for a status, with five names each. It returns the limit largest
// images, or all if limit is -1: the largest ones save the most when the scheduler avoids their
// pull. The list is not changed, and equal images have a stable order.
func showImages(all []v1.ContainerImage, limit int) []v1.ContainerImage {
	if limit == 0 || len(all) == 0 {
		return nil
	}
	out := slices.Clone(all)
	slices.SortStableFunc(out, func(a, b v1.ContainerImage) int {
		return cmp.Or(cmp.Compare(b.SizeBytes, a.SizeBytes), slices.Compare(a.Names, b.Names))
	})
	// Copied again, so that the memory of the long list is released.
	if limit > 0 && len(out) > limit {
		out = slices.Clone(out[:limit])
	}
	for i := range out {
		// Clipped, so that an append elsewhere does not write into the shared
		// array.
		out[i].Names = slices.Clip(out[i].Names[:min(len(out[i].Names), namesPerImage)])
	}
	return out
}

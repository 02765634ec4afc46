package status

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// namesPerImage bounds the names that are shown of one image: the kubelet's. An
// image may have hundreds of tags, and a status has to fit into an object of the
// API server.
const namesPerImage = 5

// showImages are those of all that a status has: the largest, limit of them (-1 is
// all), with five names each. The list is not changed. Equal ones come in an order
// that does not flap. The largest are shown, since those are the ones whose pull
// the scheduler can spare.
func showImages(all []v1.ContainerImage, limit int) []v1.ContainerImage {
	if limit == 0 || len(all) == 0 {
		return nil
	}
	out := slices.Clone(all)
	slices.SortStableFunc(out, func(a, b v1.ContainerImage) int {
		return cmp.Or(cmp.Compare(b.SizeBytes, a.SizeBytes), slices.Compare(a.Names, b.Names))
	})
	// A second copy gives up the memory of a long list.
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

//go:build linux

package image

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/platforms"
	oci "github.com/opencontainers/image-spec/specs-go/v1"
)

// choose returns the entries of an index that run on p, the best first. If there are none, the
// error names the existing platforms.
func choose(p oci.Platform, entries []descriptor) ([]descriptor, error) {
	var out []descriptor
	runs := platforms.Only(p)
	for _, e := range entries {
		if e.Platform != nil && runs.Match(*e.Platform) {
			out = append(out, e)
		}
	}
	if len(out) > 0 {
		slices.SortStableFunc(out, func(a, b descriptor) int {
			switch {
			case runs.Less(*a.Platform, *b.Platform):
				return -1
			case runs.Less(*b.Platform, *a.Platform):
				return 1
			}
			return 0
		})
		return out, nil
	}
	have := map[string]bool{}
	// No platform fits. An entry without a platform is possible: its configuration will tell.
	for _, e := range entries {
		if e.Platform == nil { // an index of one platform, or an index in an index
			out = append(out, e)
		} else if len(have) < 20 {
			// Enough for a message; a hostile index may have a thousand.
			have[shown(platforms.Format(*e.Platform))] = true
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	return nil, fmt.Errorf("%w: no image for %s; there are images for %s", errNotFound, platforms.Format(p), strings.Join(sortedKeys(have), ", "))
}

// canRun reports whether programs of an image run on p. An image without a platform is accepted:
// old builders omitted it.
func canRun(p, image oci.Platform) bool {
	return image.OS == "" && image.Architecture == "" || platforms.Only(p).Match(image)
}

// sortedKeys returns the keys of m in order, so that messages and results are reproducible.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

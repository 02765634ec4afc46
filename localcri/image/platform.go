//go:build linux

package image

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// platform is a platform of images: the object "platform" of an index, and the three fields with
// these names in a configuration.
type platform struct {
	OS           string `json:"os"`
	Architecture string `json:"architecture"`
	Variant      string `json:"variant,omitempty"`
}

// String returns the platform in the usual form: linux/arm/v7.
func (p platform) String() string {
	return strings.TrimSuffix(p.OS+"/"+p.Architecture+"/"+p.Variant, "/")
}

// norm returns the normal form of a platform: default variants are omitted, and synonyms
// replaced.
func (p platform) norm() platform {
	// Names of uname and of distributions, as some builders write them.
	switch p.Architecture {
	case "x86_64", "x86-64":
		p.Architecture = "amd64"
	case "aarch64":
		p.Architecture = "arm64"
	case "armhf":
		p.Architecture, p.Variant = "arm", "v7"
	case "armel":
		p.Architecture, p.Variant = "arm", "v6"
	}
	switch {
	// The default variants, which every CPU of the architecture supports.
	case p.Architecture == "amd64" && p.Variant == "v1", p.Architecture == "arm64" && (p.Variant == "v8" || p.Variant == "8"):
		p.Variant = ""
	case p.Architecture == "arm" && p.Variant == "":
		p.Variant = "v7"
	case p.Architecture == "arm" && !strings.HasPrefix(p.Variant, "v"):
		p.Variant = "v" + p.Variant
	}
	return p
}

// runs returns the platforms whose programs run on p, the best first. It considers only
// the architecture and the variant, not the features of the CPU.
func (p platform) runs() []platform {
	p = p.norm()
	out := []platform{p}
	add := func(arch string, variants ...string) {
		for _, v := range variants {
			out = append(out, platform{p.OS, arch, v})
		}
	}
	switch p.Architecture {
	// Microarchitecture levels of the x86-64 psABI: each includes the lower ones.
	case "amd64":
		for v := '3'; v >= '2'; v-- {
			if p.Variant > "v"+string(v) {
				add("amd64", "v"+string(v))
			}
		}
		if p.Variant != "" {
			add("amd64", "")
		}
		add("386", "")
	case "arm64":
		if p.Variant != "" {
			add("arm64", "")
		}
		// 32-bit programs come after all 64-bit ones: some 64-bit CPUs do not run them.
		add("arm", "v8", "v7", "v6", "v5")
	case "arm":
		for v := '7'; v >= '5'; v-- {
			if p.Variant > "v"+string(v) {
				add("arm", "v"+string(v))
			}
		}
	}
	return out
}

// choose returns the entries of an index that run on p, the best first. If there are none, the
// error names the existing platforms.
func choose(p platform, entries []descriptor) ([]descriptor, error) {
	var out []descriptor
	for _, want := range p.runs() {
		for _, e := range entries {
			if e.Platform != nil && e.Platform.norm() == want {
				out = append(out, e)
			}
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	have := map[string]bool{}
	// No platform fits. An entry without a platform is possible: its configuration will tell.
	for _, e := range entries {
		if e.Platform == nil { // an index of one platform, or an index in an index
			out = append(out, e)
		} else if len(have) < 20 {
			// Enough for a message; a hostile index may have a thousand.
			have[shown(e.Platform.String())] = true
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	return nil, fmt.Errorf("%w: no image for %v; there are images for %s", errNotFound, p, strings.Join(sortedKeys(have), ", "))
}

// canRun reports whether programs of an image run on p. An image without a platform is accepted:
// old builders omitted it.
func (p platform) canRun(image platform) bool {
	if image.OS == "" && image.Architecture == "" {
		return true // no platform
	}
	return slices.Contains(p.runs(), image.norm())
}

// sortedKeys returns the keys of m in order, so that messages and results are reproducible.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

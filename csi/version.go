package csi

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// version is a version of the CSI specification. The zero value is lower than any supported
// version.
type version struct{ major, minor, patch int }

func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v.major, v.minor, v.patch) }

// compare returns -1, 0 or 1. It compares numbers, not text: 1.10 is higher than 1.9.
func (v version) compare(w version) int {
	return cmp.Or(cmp.Compare(v.major, w.major), cmp.Compare(v.minor, w.minor), cmp.Compare(v.patch, w.patch))
}

// parseVersion parses a version such as "1.0.0" or "v1.2". It ignores a suffix after a dash or a
// plus. It returns false for any other text, since drivers may list other texts too.
func parseVersion(s string) (version, bool) {
	s = strings.TrimPrefix(s, "v")
	if i := strings.IndexAny(s, "-+"); i >= 0 {
		s = s[:i]
	}
	fields := strings.Split(s, ".")
	if len(fields) < 2 || len(fields) > 3 {
		return version{}, false
	}
	var n [3]int
	for i, f := range fields {
		x, err := strconv.ParseUint(f, 10, 31)
		if err != nil {
			return version{}, false
		}
		n[i] = int(x)
	}
	return version{n[0], n[1], n[2]}, true
}

// newest returns the highest supported version, which is a 1.x. It ignores texts that are not
// versions.
func newest(versions []string) (version, error) {
	var best version
	for _, s := range versions {
		if v, ok := parseVersion(s); ok && v.major == 1 && v.compare(best) > 0 {
			best = v
		}
	}
	if best.major != 1 {
		const some = 8 // number of versions in the error
		return best, fmt.Errorf("supported versions are %.64q; want one of 1.x among them", versions[:min(len(versions), some)])
	}
	return best, nil
}

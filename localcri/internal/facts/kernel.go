package facts

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Kernel is a version of Linux.
type Kernel struct{ Major, Minor int }

func (k Kernel) String() string { return fmt.Sprintf("%d.%d", k.Major, k.Minor) }

// Before reports whether k is older than other.
func (k Kernel) Before(other Kernel) bool {
	return cmp.Or(cmp.Compare(k.Major, other.Major), cmp.Compare(k.Minor, other.Minor)) < 0
}

// LeastKernel is the oldest supported version: it has openat2, clone3 and pidfds.
var LeastKernel = Kernel{5, 6}

// ParseKernel parses a release such as 6.12.9-amd64 (uname -r).
func ParseKernel(release string) (Kernel, error) {
	bad := fmt.Errorf("kernel release %.80q: must begin with two numbers and a dot between them", release)
	major, rest, ok := strings.Cut(release, ".")
	if !ok {
		return Kernel{}, bad
	}
	if i := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
		rest = rest[:i]
	}
	const bits = 16 // Linux stores these numbers in at most this many bits
	a, err1 := strconv.ParseUint(major, 10, bits)
	b, err2 := strconv.ParseUint(rest, 10, bits)
	if err1 != nil || err2 != nil {
		return Kernel{}, bad
	}
	return Kernel{int(a), int(b)}, nil
}

// Lacking is a feature that a kernel lacks, and newer kernels have.
type Lacking struct {
	Since Kernel
	What  string // name of the feature
	Lost  string // the effect of its absence
}

// Lacks returns the features that a kernel lacks, the oldest first. cgroup.kill counts only with
// cgroup v2, since v1 does not have it at all.
func (k Kernel) Lacks(cgroupV2 bool) []Lacking {
	var out []Lacking
	for _, l := range []Lacking{
		{Kernel{5, 10}, "volatile overlay mounts", "containers wait for the disk when they sync or end"},
		{Kernel{5, 12}, "mount_setattr", "recursive read-only mounts are refused"},
		{Kernel{5, 14}, "cgroup.kill", "processes of a container are killed one by one"},
		{Kernel{5, 19}, "ID-mapped lower layers of overlayfs", "pods with user namespaces are refused"},
		{Kernel{6, 8}, "lowerdir+ of overlayfs", "images with many layers are mounted by short names"},
		{Kernel{6, 15}, "exit codes of pidfds after the process was reaped", "exit codes are lost when a monitor is killed"},
	} {
		if k.Before(l.Since) && (l.What != "cgroup.kill" || cgroupV2) {
			out = append(out, l)
		}
	}
	return out
}

package cgroups

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Mounts are those of this process's mount namespace: no others can be opened
// here.
const (
	mountinfo = "/proc/self/mountinfo"
	hugepages = "/sys/kernel/mm/hugepages" // a directory for each size: hugepages-2048kB
)

// controllersV1 are all that can be in the options of a mount.
var controllersV1 = []string{
	"cpu", "cpuacct", "cpuset", "memory", "pids", "hugetlb", "devices", "freezer", "blkio",
	"net_cls", "net_prio", "perf_event", "rdma", "misc", "name=systemd",
}

// required are the controllers without which pods cannot be held to anything: a
// machine that lacks one is refused at the start. Without the others some
// values have no effect.
var required = map[Version][]string{
	V1: {"cpu", "cpuacct", "cpuset", "memory", "pids"},
	V2: {"cpu", "memory"},
}

// used are the controllers of v2 that children get, as far as the root has
// them. Each controller costs the kernel memory and time for every cgroup, so
// that others stay off.
var used = []string{"cpu", "cpuset", "hugetlb", "io", "memory", "pids"}

// A machine is where this kernel has its cgroups. It is read once, at the
// start, and does not change after that.
type machine struct {
	version Version
	// points are the mount points: one on v2, one for each set of controllers
	// on v1.
	points []string
	// of is the mount point of each controller.
	of map[string]string
	// unified is where v2 is mounted beside v1 with no controllers of its own;
	// runtimes make cgroups there as well. "" if it is not.
	unified string
	// pages are the sizes of huge pages that can be limited, in bytes.
	pages []int64
}

// detect finds out where cgroups are. want is the version that must be there,
// 0 if it does not matter. A machine is of version 2 only if v1 has neither cpu
// nor memory: where both are mounted (hybrid), the controllers are those of v1.
func detect(ctx context.Context, f files, want Version) (*machine, error) {
	data, err := f.read(ctx, mountinfo)
	if err != nil {
		return nil, err
	}
	mounts := parseMountinfo(data)
	m := machineV1(mounts)
	if m.of["cpu"] == "" && m.of["memory"] == "" && m.unified != "" {
		if m, err = machineV2(ctx, f, m.unified); err != nil {
			return nil, err
		}
	}
	if want != 0 && want != m.version {
		return nil, fmt.Errorf("cgroup version is %d; Config.Version says %d", m.version, want)
	}
	var errs []error
	for _, c := range required[m.version] {
		if m.of[c] == "" {
			errs = append(errs, &ControllerError{Controller: c})
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	// Without the controller the sizes are of no use, since nothing limits them.
	if m.of["hugetlb"] != "" {
		dirs, err := f.list(ctx, hugepages)
		if err != nil && !gone(err) {
			return nil, err
		}
		m.pages = parsePageSizes(dirs)
	}
	return m, nil
}

// machineV1 maps each controller to its hierarchy. It looks at all mounts,
// those of cgroup2 included, so that detect can tell from its result which
// version rules.
func machineV1(mounts []mount) *machine {
	m := &machine{version: V1, of: map[string]string{}}
	for _, mnt := range mounts {
		if mnt.fstype == "cgroup2" {
			m.unified = shorter(m.unified, mnt.point)
			continue
		}
		for _, o := range mnt.options {
			if slices.Contains(controllersV1, o) {
				m.of[o] = shorter(m.of[o], mnt.point)
			}
		}
	}
	// Controllers that share a hierarchy, such as cpu and cpuacct, share its mount
	// point: one directory for both.
	for _, p := range m.of {
		m.points = append(m.points, p)
	}
	slices.Sort(m.points)
	m.points = slices.Compact(m.points)
	return m
}

// machineV2 asks the root which controllers there are. Those that a hybrid v1
// holds are not among them, even if the kernel has them.
func machineV2(ctx context.Context, f files, point string) (*machine, error) {
	m := &machine{version: V2, points: []string{point}, of: map[string]string{}}
	data, err := f.read(ctx, path.Join(point, "cgroup.controllers"))
	if err != nil {
		return nil, err
	}
	for _, c := range strings.Fields(string(data)) {
		if slices.Contains(used, c) {
			m.of[c] = point
		}
	}
	return m, nil
}

// shorter is the mount point with the shorter path: others are mounts of the
// same hierarchy inside containers.
func shorter(a, b string) string {
	if a == "" || len(b) < len(a) {
		return b
	}
	return a
}

// parsePageSizes reads names such as hugepages-2048kB and returns the sizes in
// bytes, ascending. Other names are passed over.
func parsePageSizes(dirs []string) []int64 {
	var out []int64
	for _, d := range dirs {
		s, ok := strings.CutPrefix(d, "hugepages-")
		digits, ok2 := strings.CutSuffix(s, "kB")
		n, err := strconv.ParseInt(digits, 10, 32)
		if ok && ok2 && err == nil && n > 0 {
			out = append(out, n*1024)
		}
	}
	slices.Sort(out)
	return out
}

// dir is the directory of a cgroup in the hierarchy of a controller. On v1 it
// is false if the machine does not have the controller; on v2 one directory is
// that of all controllers.
func (m *machine) dir(controller, cgroup string) (string, bool) {
	point, ok := m.of[controller]
	if !ok && m.version == V2 { // files such as cgroup.kill are of none
		return path.Join(m.points[0], cgroup), true
	}
	return path.Join(point, cgroup), ok
}

// dirs are all directories of a cgroup. Processes have to be moved and
// directories made in each of them.
func (m *machine) dirs(cgroup string) []string {
	out := make([]string, 0, len(m.points)+1)
	for _, p := range m.points {
		out = append(out, path.Join(p, cgroup))
	}
	return out
}

// dirsToo returns all directories, those included that others make: runtimes
// put containers in the unified hierarchy beside v1 too. They are looked for
// and removed, and never made here.
func (m *machine) dirsToo(cgroup string) []string {
	out := m.dirs(cgroup)
	if m.version == V1 && m.unified != "" {
		out = append(out, path.Join(m.unified, cgroup))
	}
	return out
}

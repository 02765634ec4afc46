package cgroups

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/nodewright/nodewright/internal/kernel"
)

// mountinfo is the file of this process, since its own mount namespace is the only one in which it
// can open files.
const (
	mountinfo = "/proc/self/mountinfo"
	hugepages = "/sys/kernel/mm/hugepages" // a directory for each size: hugepages-2048kB
)

// controllersV1 are all controllers that a mount's options can name.
var controllersV1 = []string{
	"cpu", "cpuacct", "cpuset", "memory", "pids", "hugetlb", "devices", "freezer", "blkio",
	"net_cls", "net_prio", "perf_event", "rdma", "misc", "name=systemd",
}

// required are the controllers that limits of pods need: start fails on a machine
// that lacks one, except in a user namespace. Without other controllers some values have no effect.
var required = map[Version][]string{
	V1: {"cpu", "cpuacct", "cpuset", "memory", "pids"},
	V2: {"cpu", "memory"},
}

// used are the controllers of v2 that are enabled for children if the root has
// them. Each controller costs the kernel memory and time in every cgroup, so that
// no others are enabled.
var used = []string{"cpu", "cpuset", "hugetlb", "io", "memory", "pids"}

// A machine describes the cgroup mounts of this kernel. It is read once, at the
// start.
type machine struct {
	version Version
	// points are the mount points: one on v2, one for each set of controllers
	// on v1.
	points []string
	// of is the mount point of each controller.
	of map[string]string
	// unified is the mount point of v2 on a machine with v1, without controllers; runtimes
	// create cgroups there too. "" if it is not mounted.
	unified string
	// partial means that controllers may be missing: in a user namespace there are only those that were
	// delegated. Their values have no effect.
	partial bool
	// pages are the sizes of huge pages that can be limited, in bytes.
	pages []int64
}

// detect finds the mounts of cgroups. want is the required version, 0 for any. The version is 2
// only if v1 has neither cpu nor memory: where both are mounted (hybrid), the controllers of v1 are
// used.
func detect(ctx context.Context, f files, want Version) (*machine, error) {
	data, err := f.read(ctx, mountinfo)
	if err != nil {
		return nil, err
	}
	m := machineV1(data)
	if m.of["cpu"] == "" && m.of["memory"] == "" && m.unified != "" {
		if m, err = machineV2(ctx, f, m.unified); err != nil {
			return nil, err
		}
	}
	if want != 0 && want != m.version {
		return nil, fmt.Errorf("the machine has cgroup v%d; Config.Version is %d", m.version, want)
	}
	var errs []error
	for _, c := range required[m.version] {
		if m.of[c] == "" && !m.partial {
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
		for _, name := range dirs {
			if size := kernel.HugePageSize(name); size > 0 {
				m.pages = append(m.pages, size)
			}
		}
		slices.Sort(m.pages)
	}
	return m, nil
}

// machineV1 maps each controller to its hierarchy in a mount table. It finds the mounts of
// cgroup2 as well: detect derives the version from the result.
func machineV1(mounts []byte) *machine {
	m := &machine{version: V1, of: map[string]string{}}
	for line := range strings.Lines(string(mounts)) {
		mnt, err := kernel.ParseMount(line)
		switch {
		case err != nil:
		case mnt.Type == "cgroup2":
			m.unified = shorter(m.unified, mnt.Target)
		case mnt.Type == "cgroup":
			for _, o := range mnt.SuperOptions { // on v1 they name the controllers
				if slices.Contains(controllersV1, o) {
					m.of[o] = shorter(m.of[o], mnt.Target)
				}
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

// machineV2 reads the available controllers from the root. Controllers that a
// hybrid v1 uses are not among them.
func machineV2(ctx context.Context, f files, point string) (*machine, error) {
	m := &machine{version: V2, points: []string{point}, of: map[string]string{}, partial: inUserNamespace()}
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

// shorter returns the mount point with the shorter path: longer ones are mounts of
// the same hierarchy inside containers.
func shorter(a, b string) string {
	if a == "" || len(b) < len(a) {
		return b
	}
	return a
}

// dir returns the directory of a cgroup in the hierarchy of a controller. On v1 it
// returns false if the machine lacks the controller; on v2 all controllers share
// one directory.
func (m *machine) dir(controller, cgroup string) (string, bool) {
	point, ok := m.of[controller]
	if !ok && m.version == V2 { // files such as cgroup.kill are of none
		return path.Join(m.points[0], cgroup), true
	}
	return path.Join(point, cgroup), ok
}

// writes returns the writes for r, without those for controllers that may be missing and are.
func (m *machine) writes(r Resources, have level) []write {
	return slices.DeleteFunc(m.version.writes(r, m.pages, have), func(w write) bool {
		return m.partial && m.of[w.controller] == ""
	})
}

// dirs returns all directories of a cgroup. Directories are created, and processes
// moved, in each of them.
func (m *machine) dirs(cgroup string) []string {
	out := make([]string, 0, len(m.points)+1)
	for _, p := range m.points {
		out = append(out, path.Join(p, cgroup))
	}
	return out
}

// dirsToo returns the directories of a cgroup, including the one in the unified hierarchy beside
// v1. Runtimes put containers there too. This package searches and removes that directory, and
// never creates it.
func (m *machine) dirsToo(cgroup string) []string {
	out := m.dirs(cgroup)
	if m.version == V1 && m.unified != "" {
		out = append(out, path.Join(m.unified, cgroup))
	}
	return out
}

package node

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// shortestID is the smallest length of a container ID that is matched with cgroups.
const shortestID = 32

// ReapContainer kills the processes in the cgroups of a container that its runtime
// has lost, and returns their number.
func ReapContainer(id string) (killed int, err error) { return reap(cgroupRoots(), id) }

// reap kills the processes in the cgroups whose name contains a container's ID, below any of the
// roots, and returns their number. Runtimes put the cgroups of containers at different places,
// but all runtimes use the ID in the name.
func reap(roots []string, id string) (killed int, err error) {
	if len(id) < shortestID {
		return 0, nil
	}
	seen := map[int]bool{}
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() || !strings.Contains(d.Name(), id) {
				return nil //nolint:nilerr // cgroups come and go
			}
			procs, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
			if err != nil {
				return nil //nolint:nilerr // it went meanwhile
			}
			for line := range strings.Lines(string(procs)) {
				pid, err := strconv.Atoi(strings.TrimSpace(line))
				if err != nil || pid <= 1 || seen[pid] {
					continue
				}
				seen[pid] = true
				if err := syscall.Kill(pid, syscall.SIGKILL); err == nil {
					killed++
				}
			}
			return nil
		})
		if err != nil {
			return killed, err
		}
	}
	return killed, nil
}

// cgroupRoots returns the hierarchies in which every container has a cgroup: the
// unified one, or those v1 hierarchies that every runtime uses (cgroups(7)).
func cgroupRoots() []string {
	if CgroupV2() {
		return []string{"/sys/fs/cgroup"}
	}
	return []string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup/systemd"}
}

package oom

import (
	"errors"
	"io/fs"
	"path"
	"time"

	"github.com/nodewright/nodewright/internal/kernel"
)

// tree stores the oom_kill counters of the cgroups below the cgroup of all pods.
type tree struct {
	files fs.FS  // a cgroup v2 hierarchy
	root  string // the pods' cgroup in it, as io/fs has paths
	seen  map[string]uint64
}

// kills reads all counters and returns the cgroups that lost processes since the last call. A new
// cgroup starts at 0. The counters include removed child cgroups: if the count of a cgroup has
// grown by more than those of its children, the other kills were in removed children.
func (t *tree) kills(now time.Time) ([]Kill, error) {
	seen := make(map[string]uint64, len(t.seen))
	var out []Kill
	var errs []error
	var walk func(dir string, depth int) (grown uint64)
	walk = func(dir string, depth int) uint64 {
		raw, err := fs.ReadFile(t.files, path.Join(dir, "memory.events"))
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
			return 0
		}
		// "The number of processes belonging to this cgroup killed by any kind of OOM
		// killer" (Documentation/admin-guide/cgroup-v2.rst); older kernels lack it.
		now64 := kernel.ParseTable(raw)["oom_kill"]
		seen[dir] = now64
		grown := now64 - min(now64, t.seen[dir])
		if grown == 0 && t.seen != nil {
			return 0 // nor has anything below it
		}
		pod, container := locate("/" + dir)
		var below uint64
		if container == "" && depth < 8 {
			for _, child := range subdirs(t.files, dir) {
				below += walk(path.Join(dir, child), depth+1)
			}
		}
		if own := grown - min(grown, below); own > 0 && t.seen != nil {
			out = append(out, Kill{At: now, Cgroup: path.Join("/", dir), PodUID: pod, ContainerID: container, Count: own})
		}
		return grown
	}
	walk(t.root, 0)
	for dir, n := range t.seen {
		// No counter above this cgroup has grown, so it was not read.
		if _, ok := seen[dir]; !ok && exists(t.files, dir) {
			seen[dir] = n
		}
	}
	t.seen = seen
	return out, errors.Join(errs...)
}

func exists(files fs.FS, dir string) bool {
	_, err := fs.Stat(files, dir)
	return err == nil
}

// subdirs returns the child cgroups. If the cgroup is gone, it returns none.
func subdirs(files fs.FS, dir string) []string {
	entries, err := fs.ReadDir(files, dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, e.Name())
		}
	}
	return out
}

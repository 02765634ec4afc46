package resources

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/nodewright/nodewright/cgroups"
)

// maxNames is how many swap devices an error names.
const maxNames = 8

// devices are the names in /proc/swaps with their kinds, such as "/dev/sda2
// (partition)". Spaces in names are written as \040 there, and are left like that.
func devices(procSwaps []byte) (names []string) {
	if !cgroups.SwapOn(procSwaps) {
		return nil
	}
	heading := true
	for line := range strings.Lines(string(procSwaps)) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if heading {
			heading = false
			continue
		}
		if len(names) == maxNames {
			return append(names, "and more")
		}
		name := f[0]
		if len(f) > 1 {
			name += " (" + f[1] + ")"
		}
		names = append(names, name)
	}
	return names
}

// read returns the names of the swap of a machine, and its size in bytes. A kernel
// that has no swap has no file about it.
func read(files fs.FS) (names []string, size int64, err error) {
	swaps, err := fs.ReadFile(files, "proc/swaps")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	if names = devices(swaps); len(names) == 0 {
		return nil, 0, nil
	}
	meminfo, err := fs.ReadFile(files, "proc/meminfo")
	if err != nil {
		return nil, 0, err
	}
	size, err = total(meminfo)
	return names, size, err
}

// total is SwapTotal of /proc/meminfo in bytes.
func total(meminfo []byte) (int64, error) {
	for line := range strings.Lines(string(meminfo)) {
		value, ok := strings.CutPrefix(line, "SwapTotal:")
		if !ok {
			continue
		}
		kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
		if err != nil || kb < 0 || kb > 1<<52 {
			return 0, fmt.Errorf("SwapTotal of /proc/meminfo is %.40q; want a number of kB", strings.TrimSpace(value))
		}
		return kb << 10, nil
	}
	return 0, errors.New("/proc/meminfo has no line SwapTotal")
}

const (
	cgroupRoot = "sys/fs/cgroup"
	maxV2      = "memory.swap.max"
	maxV1      = "memory.memsw.limit_in_bytes"
	// maxChildren is how many cgroups below the root are looked at.
	maxChildren = 256
)

// unified reports whether cgroups are those of v2.
func unified(files fs.FS) bool { return exists(files, cgroupRoot+"/cgroup.controllers") }

// limited reports whether the cgroups of a machine limit swap. The root of v2 has no
// limits, so that the agent's own cgroup is asked, and those below the root.
func limited(files fs.FS) bool {
	if !unified(files) {
		return exists(files, path.Join(cgroupRoot, "memory", maxV1))
	}
	own, _ := fs.ReadFile(files, "proc/self/cgroup")
	if of, err := cgroups.ParseProcCgroup(own); err == nil {
		if dir := path.Join(cgroupRoot, of[""]); strings.HasPrefix(dir, cgroupRoot) && exists(files, path.Join(dir, maxV2)) {
			return true
		}
	}
	dir, err := files.Open(cgroupRoot)
	if err != nil {
		return false
	}
	defer func() { _ = dir.Close() }()
	list, ok := dir.(fs.ReadDirFile)
	if !ok {
		return false
	}
	below, _ := list.ReadDir(maxChildren) // some are as good as all
	for _, e := range below {
		if e.IsDir() && exists(files, path.Join(cgroupRoot, e.Name(), maxV2)) {
			return true
		}
	}
	return false
}

func exists(files fs.FS, name string) bool {
	_, err := fs.Stat(files, name)
	return err == nil
}

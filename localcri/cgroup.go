//go:build linux

package localcri

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/safefile"
)

// cgroupRoot is where the hierarchies are mounted: the unified one, or one for
// each controller below it.
const cgroupRoot = "/sys/fs/cgroup"

// removeCgroup removes a cgroup that has no processes, from all hierarchies.
func removeCgroup(root, cgroup string) error {
	if cgroup == "" || path.Clean(cgroup) == "/" {
		return nil
	}
	const most = 64 // controllers
	names, err := safefile.Names(root, most)
	if err != nil {
		return err
	}
	var errs []error
	for _, d := range append(names, "") {
		err := unix.Rmdir(filepath.Join(root, d, cgroup))
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
			errs = append(errs, &os.PathError{Op: "remove cgroup", Path: filepath.Join(root, d, cgroup), Err: err})
		}
	}
	return errors.Join(errs...)
}

// cgroupOf is the cgroup, below the hierarchy's root, of what config.json calls
// its path: "slice:prefix:name" is a scope of systemd's.
func cgroupOf(spec string) string {
	slice, rest, ok := strings.Cut(spec, ":")
	prefix, name, ok2 := strings.Cut(rest, ":")
	if !ok || !ok2 {
		return spec
	}
	return path.Join(slicePath(slice), prefix+"-"+name+".scope")
}

// podCgroup is the cgroup of a CRI's cgroup parent.
func podCgroup(parent string) string {
	if strings.HasSuffix(parent, ".slice") && !strings.Contains(parent, "/") {
		return slicePath(parent)
	}
	return parent
}

// slicePath is where systemd has a slice: a-b.slice is /a.slice/a-b.slice
// (systemd.slice(5)).
func slicePath(slice string) string {
	name := strings.TrimSuffix(slice, ".slice")
	if name == "-" || name == "" {
		return "/"
	}
	out := "/"
	for i, r := range name {
		if r == '-' && i > 0 {
			out = path.Join(out, name[:i]+".slice")
		}
	}
	return path.Join(out, slice)
}

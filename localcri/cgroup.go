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

// cgroupRoot is where the cgroup hierarchies are mounted: the hierarchy of v2 itself, or on v1
// one below it for each controller.
const cgroupRoot = "/sys/fs/cgroup"

// removeCgroup removes a cgroup that has no processes, from all hierarchies.
func removeCgroup(root, cgroup string) error {
	if cgroup == "" || path.Clean(cgroup) == "/" {
		return nil
	}
	const most = 64 // limit of controllers
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

// cgroupOf returns the cgroup, relative to the hierarchy's root, for a path of config.json:
// "slice:prefix:name" is a systemd scope.
func cgroupOf(spec string) string {
	slice, rest, ok := strings.Cut(spec, ":")
	prefix, name, ok2 := strings.Cut(rest, ":")
	if !ok || !ok2 {
		return spec
	}
	return path.Join(slicePath(slice), prefix+"-"+name+".scope")
}

// podCgroup returns the cgroup for a cgroup parent of the CRI.
func podCgroup(parent string) string {
	if strings.HasSuffix(parent, ".slice") && !strings.Contains(parent, "/") {
		return slicePath(parent)
	}
	return parent
}

// slicePath returns the path of a systemd slice: a-b.slice is at /a.slice/a-b.slice
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

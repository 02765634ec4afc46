package facts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/localcri/internal/ocispec"
)

// Limits for the search for device nodes.
const (
	maxNodes = 16384 // entries of one directory, and nodes in total
	maxDepth = 8     // directories
)

// notNodes are entries of /dev that are not searched: directories without devices, directories
// of which each container has its own, and the console, which is a terminal of the container.
var notNodes = []string{"pts", "shm", "fd", "mqueue", ".lxc", ".lxd-mounts", ".udev", "console"}

// HostDevices returns all device nodes of the host, for privileged containers.
func (f *Facts) HostDevices(ctx context.Context) ([]ocispec.Device, error) {
	found, err := f.detach(ctx, "host devices", func() (found, error) {
		var w walk
		err := w.dir(f.cfg.Dev, "/dev", notNodes, maxDepth)
		return found{devices: w.nodes}, err
	})
	return slices.Clone(found.devices), err
}

// Devices returns the device nodes for each device of a CRI request, by index. If the host
// path is a directory, these are all nodes below it; otherwise it is one node, or none.
// Links are resolved on the host.
func (f *Facts) Devices(ctx context.Context, devices []*runtimeapi.Device) ([][]ocispec.Device, error) {
	out := make([][]ocispec.Device, len(devices))
	for i, d := range devices {
		found, err := f.detach(ctx, "device "+d.GetHostPath()+"\x00"+d.GetContainerPath(), func() (found, error) {
			nodes, err := nodesAt(d.GetHostPath(), d.GetContainerPath())
			return found{devices: nodes}, err
		})
		if err != nil {
			return nil, fmt.Errorf("devices[%d].host_path %.200q: %w", i, d.GetHostPath(), err)
		}
		out[i] = slices.Clone(found.devices)
	}
	return out, nil
}

func nodesAt(host, container string) ([]ocispec.Device, error) {
	if !filepath.IsAbs(host) {
		return nil, nil
	}
	resolved, err := filepath.EvalSymlinks(host)
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Lstat(resolved, &st); absent(err) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		var w walk
		err := w.dir(resolved, path.Clean(container), nil, maxDepth)
		return w.nodes, err
	}
	if d, ok := node(path.Clean(container), &st); ok {
		return []ocispec.Device{d}, nil
	}
	return nil, nil
}

func absent(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) }

// node describes a file of the host as a device with the path containerPath. It returns false if
// the file is not a device node.
func node(containerPath string, st *unix.Stat_t) (ocispec.Device, bool) {
	d := ocispec.Device{
		Path: containerPath, Mode: st.Mode & 0o7777, UID: st.Uid, GID: st.Gid,
		Major: int64(unix.Major(uint64(st.Rdev))), Minor: int64(unix.Minor(uint64(st.Rdev))), //nolint:unconvert // Rdev has 32 bits elsewhere
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFCHR:
		d.Type = "c"
	case unix.S_IFBLK:
		d.Type = "b"
	default:
		return d, false
	}
	return d, true
}

type walk struct{ nodes []ocispec.Device }

// dir collects the nodes below a directory. containerDir is the path of the directory in the
// container. dir follows no links, and ignores entries that disappear during the search.
func (w *walk) dir(dir, containerDir string, except []string, depth int) error {
	if depth == 0 {
		return nil
	}
	entries, err := safefile.Entries(dir, maxNodes)
	if absent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int {
		if a.Name() < b.Name() {
			return -1
		}
		return 1
	})
	for _, e := range entries {
		if slices.Contains(except, e.Name()) {
			continue
		}
		host, at := filepath.Join(dir, e.Name()), path.Join(containerDir, e.Name())
		if e.IsDir() {
			if err := w.dir(host, at, nil, depth-1); err != nil {
				return err
			}
			continue
		}
		if e.Type()&fs.ModeDevice == 0 {
			continue
		}
		var st unix.Stat_t
		if unix.Lstat(host, &st) != nil {
			continue
		}
		if d, ok := node(at, &st); ok {
			if len(w.nodes) == maxNodes {
				return fmt.Errorf("%s: more than %d device nodes", dir, maxNodes)
			}
			w.nodes = append(w.nodes, d)
		}
	}
	return nil
}

package plugins

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/mount"
)

// Mounter returns a volumemgr.Mounter that uses m.
func Mounter(m mount.Mounter) volumemgr.Mounter { return fitted{m} }

type fitted struct{ m mount.Mounter }

// Mounts returns the mounts at dir and below.
func (f fitted) Mounts(dir string) ([]volumemgr.Mount, error) {
	table, err := mount.Under(context.Background(), f.m, dir)
	if err != nil {
		return nil, err
	}
	var out []volumemgr.Mount
	for _, e := range table {
		out = append(out, volumemgr.Mount{
			Path: e.Target, Root: e.Root, Device: fmt.Sprintf("%d:%d", e.Major, e.Minor),
			FSType: e.Type, Source: e.Source, Options: slices.Concat(e.Options, e.SuperOptions),
		})
	}
	return out, nil
}

// Mount mounts with options of mount(8).
func (f fitted) Mount(ctx context.Context, source, target, fsType string, options []string) error {
	b := mount.Bind{Source: source, Target: target}
	bind := false
	var rest []string
	for _, o := range options {
		switch o {
		case "bind":
			bind = true
		case "rbind":
			bind, b.Recursive = true, true
		case "private", "rprivate", "slave", "rslave", "shared", "rshared":
			b.Propagation = mount.Propagation(strings.TrimPrefix(o, "r"))
		default:
			rest = append(rest, o)
		}
	}
	if bind {
		b.ReadOnly = slices.Contains(rest, "ro")
		b.Options = rest
		return f.m.Bind(ctx, b)
	}
	if b.Propagation != "" {
		return fmt.Errorf("mount %s at %s: propagation %s is possible only for bind mounts", fsType, target, b.Propagation)
	}
	err := f.m.Mount(ctx, mount.FileSystem{Type: fsType, Source: source, Target: target, Options: options, Helper: hasHelper(fsType)})
	if err != nil && ctx.Err() != nil {
		err = errors.Join(err, volumemgr.ErrUncertain)
	}
	return err
}

// hasHelper reports whether the mount program has a helper for a file system.
func hasHelper(fsType string) bool {
	if fsType == "" || strings.ContainsAny(fsType, "/\x00") {
		return false
	}
	_, err := os.Stat("/sbin/mount." + fsType)
	return err == nil
}

// Unmount unmounts the topmost mount at target. It succeeds if there is none.
func (f fitted) Unmount(ctx context.Context, target string) error {
	found, err := mount.Find(ctx, f.m, target)
	if err != nil || len(found) == 0 {
		return err
	}
	how := mount.Plain
	if network(found[len(found)-1].Type) {
		how = mount.Network
	}
	err = f.m.Unmount(ctx, target, how)
	if errors.Is(err, mount.ErrNotMounted) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// network reports whether a file system is on a server, which may become unreachable.
func network(fsType string) bool {
	switch fsType {
	case "nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "glusterfs", "lustre", "afs":
		return true
	}
	return strings.HasPrefix(fsType, "fuse.")
}

package plugins

import (
	"context"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/fsgroup"
	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/mount"
)

// own gives the files to the pod's fsGroup, unless another pod uses the volume.
func (p *localPlugin) own(ctx context.Context, v *volumemgr.Volume) error {
	if v.FSGroup == nil || v.Spec.ReadOnly {
		return nil
	}
	table, err := p.cfg.Mounter.Table(ctx)
	if err != nil {
		return fmt.Errorf("look for other pods with the volume: %w", err)
	}
	path, err := mount.Resolve(v.Path)
	if err != nil {
		return err
	}
	if others := shared(table, path); len(others) > 0 {
		info, err := p.look(ctx, v.Path)
		if err != nil {
			return err
		}
		if gid, known := groupOf(info); known && gid != *v.FSGroup {
			v.Warn("AlreadyMountedVolume", fmt.Sprintf("The requested fsGroup is %d, but the volume %s has GID %d. The volume may not be shareable.", *v.FSGroup, v.Name, gid))
		}
		return nil
	}
	return fsgroup.Apply(ctx, fsgroup.Request{
		Root: v.Path, GID: *v.FSGroup,
		OnRootMismatch: v.FSGroupPolicy != nil && *v.FSGroupPolicy == v1.FSGroupChangeOnRootMismatch,
		Progress: func(n int64, first bool) {
			text := fmt.Sprintf("Still setting the group of files in volume %s: %d files are done.", v.Name, n)
			if first {
				text = fmt.Sprintf("Setting the group of volume %s is slow; consider fsGroupChangePolicy OnRootMismatch.", v.Name)
			}
			v.Warn("VolumePermissionChangeInProgress", text)
		},
	})
}

// shared returns the mounts, in other pods, of the volume that is mounted at path.
func shared(table mount.Table, path string) []mount.Entry {
	at := table.At(path)
	if len(at) == 0 {
		return nil
	}
	own := at[len(at)-1]
	var out []mount.Entry
	for _, e := range table {
		if e.Major == own.Major && e.Minor == own.Minor && e.Root == own.Root && e.Target != path && strings.Contains(e.Target, "/volumes/"+escaped+"/") {
			out = append(out, e)
		}
	}
	return out
}

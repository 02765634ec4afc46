package cgroups

import (
	"context"
	"errors"
	"maps"
	"path"
	"slices"
)

// Facts are what a machine's cgroups can do. Others decide by them: whether a
// container's resources may name values of v2, or swap. They do not change
// while the machine is up.
type Facts struct {
	Version Version
	// Controllers are those that there are, by name, sorted.
	Controllers []string
	// Swap reports that swap can be limited: where it cannot, no limit of it is
	// to be asked for (KEP-2400).
	Swap bool
	// Pressure reports that cgroups tell how long tasks wait.
	Pressure bool
	// Hugepages are the sizes of page that can be limited, in bytes, ascending.
	Hugepages []int64
}

// Facts returns what this machine's cgroups can do. It makes the node's cgroups if
// they are not there yet, since limits of swap show only below the root. Files
// that are missing mean "cannot"; other failures are errors.
func (m *Manager) Facts(ctx context.Context) (Facts, error) {
	d := m.started.Load()
	if d == nil {
		var err error
		if m.cfg.NoPodCgroups {
			d, err = m.newDriver(ctx) // and no cgroup is made
		} else {
			d, err = m.start(ctx)
		}
		if err != nil {
			return Facts{}, err
		}
	}
	out := Facts{
		Version: d.on.version, Controllers: slices.Sorted(maps.Keys(d.on.of)), Hugepages: slices.Clone(d.on.pages),
	}
	// The file is there only if the kernel accounts for swap (the boot parameter
	// swapaccount=1).
	if d.on.version == V1 {
		err := d.has(ctx, path.Join(d.on.of["memory"], "memory.memsw.limit_in_bytes"))
		out.Swap = err == nil
		return out, ignoreAbsence(err)
	}
	pressure := d.has(ctx, path.Join(d.on.points[0], "cpu.pressure"))
	out.Pressure = pressure == nil
	if m.cfg.NoPodCgroups { // the root has no limits to look for
		return out, ignoreAbsence(pressure)
	}
	node, err := m.literal(m.tree.node)
	if err != nil {
		return Facts{}, err
	}
	swap := d.has(ctx, path.Join(d.on.points[0], node, "memory.swap.max"))
	out.Swap = swap == nil
	return out, errors.Join(ignoreAbsence(pressure), ignoreAbsence(swap))
}

// has returns nil for a file that can be read, with its content dropped: a file
// of PSI that exists may still refuse to be opened.
func (d *driver) has(ctx context.Context, file string) error {
	_, err := d.read(ctx, file)
	return err
}

// ignoreAbsence drops errors that only say that the machine lacks a feature.
func ignoreAbsence(err error) error {
	if gone(err) || noPressure(err) {
		return nil
	}
	return err
}

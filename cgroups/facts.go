package cgroups

import (
	"context"
	"errors"
	"maps"
	"path"
	"slices"
)

// Facts describes the capabilities of the machine's cgroups, such as whether a
// container's resources may have values of v2, or swap. They do not change while
// the machine is up.
type Facts struct {
	Version Version
	// Controllers are the available controllers by name, sorted.
	Controllers []string
	// Swap reports whether swap can be limited. Where it cannot, no swap limit may
	// be set (KEP-2400).
	Swap bool
	// Pressure reports whether cgroups report pressure (PSI).
	Pressure bool
	// Hugepages are the page sizes that can be limited, in bytes, ascending.
	Hugepages []int64
}

// Facts returns the capabilities of this machine's cgroups. It creates the node's
// cgroups if they do not exist, since swap limits are visible only below the root.
// A missing file means that the machine lacks the feature; other failures are
// errors.
func (m *Manager) Facts(ctx context.Context) (Facts, error) {
	d := m.started.Load()
	if d == nil {
		var err error
		if m.cfg.NoPodCgroups {
			d, err = m.newDriver(ctx) // creates no cgroup
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
	// The file exists only if the kernel accounts for swap (boot parameter
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

// has returns nil if a file can be opened and read. It drops the content: if PSI is off, the
// kernel refuses to open a file that exists.
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

package cgroups

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/nodewright/nodewright/internal/kernel"
)

// Driver says which program creates the cgroups. The container runtime must be
// configured with the same one: otherwise containers end up in another tree than
// their pods.
type Driver string

// The drivers, in the kubelet's words (cgroupDriver).
const (
	Cgroupfs Driver = "cgroupfs"
	Systemd  Driver = "systemd"
)

// Units creates and removes slices of systemd. Its methods get the name of a unit
// and of the slice above it, such as kubepods-burstable.slice. They may be called
// from any goroutine and may block; a Manager abandons a call after
// ten seconds.
type Units interface {
	// Start creates the slice unit below the slice parent. A slice that exists is
	// not changed.
	Start(ctx context.Context, unit, parent string) error
	// Set applies those values of r for which systemd has a property. The Manager
	// writes the rest to files.
	Set(ctx context.Context, unit, parent string, r Resources) error
	// Stop stops a unit; systemd kills its processes. If the unit does not exist, Stop returns
	// nil.
	Stop(ctx context.Context, unit, parent string) error
}

// driver creates, changes and removes cgroups. It has no state and needs no lock:
// each method reads the current values. The Manager serializes the calls for the
// same cgroup.
type driver struct {
	files
	on    *machine
	units Units // nil with Cgroupfs
	page  int64 // size of a page in bytes
	// root is the number of leading components that belong to Config.Root. Those
	// cgroups are never created or changed.
	root int
}

// together calls f with a driver that makes its calls in one batch. See
// calls.together for the state after ErrNoAnswer.
func (d *driver) together(ctx context.Context, f func(*driver) error) error {
	return d.Calls.Together(ctx, func(b *kernel.Batch) error {
		batched := *d
		batched.in = b
		return f(&batched)
	})
}

// literal returns the path of n below the mount points, in the form of the driver in use: as it
// is for cgroupfs, or as nested slices for systemd.
func (d *driver) literal(n Name) (string, error) {
	if d.units == nil {
		return n.Cgroupfs(), nil
	}
	return n.Systemd()
}

// exists returns nil if a cgroup exists with all required controllers, ErrNotExist
// if it does not exist at all, and otherwise one ControllerError for each
// controller that it lacks. On v1 a cgroup is several directories, some of which
// may be missing.
func (d *driver) exists(ctx context.Context, cgroup string) error {
	if d.on.version == V2 {
		data, err := d.read(ctx, path.Join(d.on.points[0], cgroup, "cgroup.controllers"))
		if gone(err) {
			return fmt.Errorf("%s: %w", cgroup, ErrNotExist)
		}
		if err != nil {
			return err
		}
		return d.lacks(cgroup, strings.Fields(string(data)))
	}
	var missing []error
	there := false
	for _, c := range required[V1] {
		// Every cgroup of v1 has that file, and its content is one digit, so that
		// it is cheap to read.
		_, err := d.read(ctx, path.Join(d.on.of[c], cgroup, "notify_on_release"))
		switch {
		case gone(err):
			missing = append(missing, &ControllerError{c, cgroup})
		case err != nil:
			return err
		default:
			there = true
		}
	}
	if !there {
		return fmt.Errorf("%s: %w", cgroup, ErrNotExist)
	}
	return errors.Join(missing...)
}

// lacks returns a ControllerError for each controller that the machine has and that is not in
// enabled, the list of a v2 cgroup's controllers.
func (d *driver) lacks(cgroup string, enabled []string) error {
	var errs []error
	for _, c := range []string{"cpu", "cpuset", "memory", "pids", "hugetlb"} {
		if d.on.of[c] != "" && !slices.Contains(enabled, c) {
			errs = append(errs, &ControllerError{c, cgroup})
		}
	}
	return errors.Join(errs...)
}

// create creates the cgroup and its missing ancestors, and reports whether any of them was missing.
// For a cgroup that exists it adds missing directories and controllers.
func (d *driver) create(ctx context.Context, n Name) (made bool, err error) {
	cgroup, err := d.literal(n)
	if err != nil {
		return false, err
	}
	// Cgroups of Config.Root are checked and never created.
	if len(n) <= d.root {
		return false, d.exists(ctx, cgroup)
	}
	// systemd creates directories only in hierarchies that it manages; mkdir below creates the
	// directories in the other hierarchies.
	if d.units != nil {
		if made, err = d.startUnit(ctx, n, cgroup); err != nil {
			return made, err
		}
	}
	for _, dir := range d.on.dirs(cgroup) {
		err := d.mkdir(ctx, dir)
		// The parent is created on demand, instead of checking each level at each
		// call.
		if errors.Is(err, fs.ErrNotExist) {
			if _, err := d.create(ctx, n[:len(n)-1]); err != nil {
				return made, err
			}
			err = d.mkdir(ctx, dir)
		}
		switch {
		case err == nil:
			made = true
		// Another call, or systemd, may have been faster.
		case !errors.Is(err, fs.ErrExist):
			return made, err
		}
	}
	// The directory alone is not enough: on v2 its controllers have to be enabled
	// in the parent, on v1 its cpuset has to be filled.
	if d.on.version == V2 {
		return made, d.enable(ctx, cgroup)
	}
	return made, d.inheritCPUSet(ctx, cgroup)
}

// startUnit starts the slice of n, after those above it, unless the cgroup exists
// with all its controllers. It reports whether it called systemd.
func (d *driver) startUnit(ctx context.Context, n Name, cgroup string) (made bool, err error) {
	if err := d.exists(ctx, cgroup); err == nil {
		return false, nil
	}
	if len(n)-1 > d.root {
		if _, err := d.create(ctx, n[:len(n)-1]); err != nil {
			return false, err
		}
	}
	unit, parent := unitOf(cgroup)
	return true, d.do(ctx, "start", unit, func() error { return d.units.Start(ctx, unit, parent) })
}

// enable enables the controllers for a cgroup of v2 in every ancestor, from the top
// down, as the kernel demands (Documentation/admin-guide/cgroup-v2.rst, "Enabling
// and Disabling"). Failures of optional controllers are ignored.
func (d *driver) enable(ctx context.Context, cgroup string) error {
	point := d.on.points[0]
	data, err := d.read(ctx, path.Join(point, cgroup, "cgroup.controllers"))
	if err != nil {
		return err
	}
	var errs []error
	if d.missing(string(data)) != nil {
		above := "/"
		for _, c := range parseCgroupfs(cgroup) {
			errs = append(errs, d.enableIn(ctx, path.Join(point, above)))
			above = path.Join(above, c)
		}
		// Errors of single writes prove nothing: other programs may enable the same
		// controllers at the same time. The controllers that the cgroup has
		// afterwards decide.
		if data, err = d.read(ctx, path.Join(point, cgroup, "cgroup.controllers")); err != nil {
			return err
		}
	}
	if err := d.lacks(cgroup, strings.Fields(string(data))); err != nil {
		return errors.Join(append([]error{err}, errs...)...)
	}
	return nil // only optional controllers failed
}

// missing returns the controllers that children need and the machine has, and that are not in the
// list enabled.
func (d *driver) missing(enabled string) []string {
	var out []string
	for _, c := range used {
		if d.on.of[c] != "" && !slices.Contains(strings.Fields(enabled), c) {
			out = append(out, c)
		}
	}
	return out
}

// enableIn enables the missing controllers for the children of a directory. It writes each
// controller by itself: if one of several in a write is refused, the kernel enables none.
func (d *driver) enableIn(ctx context.Context, dir string) error {
	file := path.Join(dir, "cgroup.subtree_control")
	data, err := d.read(ctx, file)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range d.missing(string(data)) {
		errs = append(errs, d.write(ctx, file, "+"+c))
	}
	return errors.Join(errs...)
}

// inheritCPUSet copies the CPUs and memory nodes of the parent to a cgroup of v1
// that has none. A cpuset of v1 starts out empty, unlike one of v2, and the kernel
// refuses every process in an empty one (cgroup-v1/cpusets).
func (d *driver) inheritCPUSet(ctx context.Context, cgroup string) error {
	if cgroup == "/" {
		return nil
	}
	parent, filled := path.Dir(cgroup), false
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		has, err := d.cpuset(ctx, cgroup, file)
		if err != nil {
			return err
		}
		// A value that is set, by a CPU policy for example, is kept.
		if has != "" {
			continue
		}
		if has, err = d.cpuset(ctx, parent, file); err != nil {
			return err
		}
		// The parent may be as new as its child. The recursion ends at the root,
		// which always has values.
		if has == "" {
			if err := d.inheritCPUSet(ctx, parent); err != nil {
				return err
			}
			if has, err = d.cpuset(ctx, parent, file); err != nil {
				return err
			}
		}
		if err := d.write(ctx, d.file("cpuset", cgroup, file), has); err != nil {
			return err
		}
		filled = true
	}
	if filled && len(parseCgroupfs(parent)) > d.root {
		// With clone_children the kernel copies the cpuset to new children itself, also to the
		// cgroups of containers. That saves writes, each of which makes the kernel rebuild its
		// scheduling domains. If the write fails, the next child is filled like this one.
		_ = d.write(ctx, d.file("cpuset", parent, "cgroup.clone_children"), "1")
	}
	return nil
}

// fill writes r to a cgroup that was just created. It reads nothing first: that
// would double the calls that a pod's start waits for.
func (d *driver) fill(ctx context.Context, cgroup string, r Resources) error {
	// systemd has to be called first, which apply does.
	if d.units != nil {
		return d.apply(ctx, cgroup, r)
	}
	return errors.Join(d.writeAll(ctx, cgroup, d.on.writes(r, noLimits))...)
}

// apply writes the values of r that differ from the current ones. A value that the
// kernel refuses does not stop the others. Equal values are not written: a write to
// memory.max may reclaim memory, and a change of a unit is a call over D-Bus.
func (d *driver) apply(ctx context.Context, cgroup string, r Resources) error {
	// Only v1 has values whose order depends on the current ones.
	have := level{memorySwap: Unlimited}
	if d.on.version == V1 && (r.CPUQuota != nil || r.MemorySwap != nil) {
		var err error
		if have, err = d.level(ctx, cgroup); err != nil {
			return err
		}
	}
	todo, errs := d.diff(ctx, cgroup, d.on.writes(r, have))
	// systemd goes before the files: when it applies the unit's properties, it
	// writes its own values to the files. The values that it does not know are
	// written afterwards.
	if len(todo) > 0 && d.units != nil {
		unit, parent := unitOf(cgroup)
		err := d.do(ctx, "set", unit, func() error { return d.units.Set(ctx, unit, parent, r) })
		if err != nil {
			return err
		}
		todo, errs = d.diff(ctx, cgroup, todo)
	}
	return errors.Join(append(errs, d.writeAll(ctx, cgroup, todo)...)...)
}

// writeAll writes all values that the kernel accepts and returns the errors of the others. It is
// not an error if the file of an optional value is missing. EBUSY of the memory controller, which
// v1 returns for a limit below the usage, becomes ErrInUse.
func (d *driver) writeAll(ctx context.Context, cgroup string, todo []write) (errs []error) {
	for _, w := range todo {
		dir, ok := d.on.dir(w.controller, cgroup)
		if !ok {
			if !w.optional {
				errs = append(errs, &ControllerError{w.controller, cgroup})
			}
			continue
		}
		err := d.write(ctx, path.Join(dir, w.file), w.value)
		switch {
		case err == nil, w.optional && errors.Is(err, fs.ErrNotExist):
		case w.controller == "memory" && errors.Is(err, syscall.EBUSY):
			errs = append(errs, fmt.Errorf("%w: %w", ErrInUse, err))
		default:
			errs = append(errs, err)
		}
	}
	return errs
}

// diff returns the writes that change a value. A value whose file cannot be read has an error in
// errs and no write in todo. An optional value whose file is missing has neither.
func (d *driver) diff(ctx context.Context, cgroup string, all []write) (todo []write, errs []error) {
	for _, w := range all {
		dir, ok := d.on.dir(w.controller, cgroup)
		if !ok {
			if !w.optional {
				errs = append(errs, &ControllerError{w.controller, cgroup})
			}
			continue
		}
		data, err := d.read(ctx, path.Join(dir, w.file))
		switch {
		case err == nil && w.same(string(data), d.page):
		case err == nil:
			todo = append(todo, w)
		case w.optional && errors.Is(err, fs.ErrNotExist):
		case gone(err):
			errs = append(errs, fmt.Errorf("%s of %s: %w", w.file, cgroup, ErrNotExist))
		default:
			errs = append(errs, err)
		}
	}
	return todo, errs
}

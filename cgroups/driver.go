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
)

// Driver describes who makes cgroups. It has to be the one that the container
// runtime is configured with: both would otherwise put containers in different
// trees.
type Driver string

// The drivers, in the kubelet's words (cgroupDriver).
const (
	Cgroupfs Driver = "cgroupfs"
	Systemd  Driver = "systemd"
)

// Units are the slices of systemd, called with the name of a unit and of the
// slice that it is in, such as kubepods-burstable.slice. Methods may be called
// from any goroutine and may block for as long as systemd takes; a Manager
// gives them up after Config.CallTimeout.
type Units interface {
	// Start makes the slice unit below the slice parent. One that is there is
	// left as it is.
	Start(ctx context.Context, unit, parent string) error
	// Set gives a unit what it may use, as far as systemd knows of it. The rest of
	// r is written to files by the Manager, after a look at what is missing.
	Set(ctx context.Context, unit, parent string, r Resources) error
	// Stop ends a unit. One that is not there has ended. systemd kills the
	// processes in it.
	Stop(ctx context.Context, unit, parent string) error
}

// driver makes, changes and removes cgroups. It holds no state of cgroups, and
// so needs no lock: each method reads what it has to know. Calls for the same
// cgroup are kept in turn by the Manager.
type driver struct {
	files
	on    *machine
	units Units // nil: there is no systemd to ask
	page  int64 // bytes of a page
	// root is how many components names have that are never made. Making or
	// changing those would be meddling with cgroups of others.
	root int
}

// together calls f with a driver whose calls are made in one batch. See
// calls.together for what holds when it returns ErrNoAnswer.
func (d *driver) together(ctx context.Context, f func(*driver) error) error {
	return d.calls.together(ctx, func(b *batch) error {
		batched := *d
		batched.in = b
		return f(&batched)
	})
}

// literal returns the path of n below the mount points, in the form of the
// driver in use: n as it is, or as nested slices.
func (d *driver) literal(n Name) (string, error) {
	if d.units == nil {
		return n.Cgroupfs(), nil
	}
	return n.Systemd()
}

// exists returns nil if a cgroup is there with every controller that has to be,
// an error of ErrNotExist if it is not there at all, and otherwise one
// ControllerError for each controller that it lacks. On v1 a cgroup is several
// directories, some of which may be missing.
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
		// Every cgroup of v1 has that file, and its content is one digit, however
		// many processes there are.
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

// lacks names the controllers that a cgroup of v2 is to have and has not.
// Controllers that the machine does not offer are not asked for.
func (d *driver) lacks(cgroup string, has []string) error {
	var errs []error
	for _, c := range []string{"cpu", "cpuset", "memory", "pids", "hugetlb"} {
		if d.on.of[c] != "" && !slices.Contains(has, c) {
			errs = append(errs, &ControllerError{c, cgroup})
		}
	}
	return errors.Join(errs...)
}

// create makes the cgroup, and those above it that are missing down from the
// root. It reports whether there was any to be made. It is safe to call for a
// cgroup that is there: missing directories and controllers are made up for.
func (d *driver) create(ctx context.Context, n Name) (made bool, err error) {
	cgroup, err := d.literal(n)
	if err != nil {
		return false, err
	}
	// Cgroups of the root are checked and never made.
	if len(n) <= d.root {
		return false, d.exists(ctx, cgroup)
	}
	// systemd makes directories only in hierarchies that it manages; mkdir below
	// makes those of the rest.
	if d.units != nil {
		if made, err = d.startUnit(ctx, n, cgroup); err != nil {
			return made, err
		}
	}
	for _, dir := range d.on.dirs(cgroup) {
		err := d.mkdir(ctx, dir)
		// The parent is missing: made on demand, instead of one check for each level
		// at each call.
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
	// A directory alone is not enough on either version: on v2 its controllers
	// have to be enabled above, on v1 its cpuset has to be filled.
	if d.on.version == V2 {
		return made, d.enable(ctx, cgroup)
	}
	return made, d.inheritCPUSet(ctx, cgroup)
}

// startUnit starts the slice of n, and those above it first, unless the cgroup
// is there with all its controllers. It reports whether it asked systemd for
// it.
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

// enable hands the controllers down to a cgroup of v2 from those above it.
// Controllers are enabled from the top down, as the kernel demands
// (Documentation/admin-guide/cgroup-v2.rst, "Enabling and Disabling"), in every
// ancestor and not in the cgroup itself. Failures of controllers that pods can
// do without are dropped.
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
		// Errors of single writes prove nothing: others may enable the same
		// controllers at the same time. What the cgroup has in the end decides.
		if data, err = d.read(ctx, path.Join(point, cgroup, "cgroup.controllers")); err != nil {
			return err
		}
	}
	if err := d.lacks(cgroup, strings.Fields(string(data))); err != nil {
		return errors.Join(append([]error{err}, errs...)...)
	}
	return nil // what else did not work was not needed
}

// missing returns the controllers that this machine has, that children are to
// get, and that are not among those listed in has.
func (d *driver) missing(has string) []string {
	var out []string
	for _, c := range used {
		if d.on.of[c] != "" && !slices.Contains(strings.Fields(has), c) {
			out = append(out, c)
		}
	}
	return out
}

// enableIn enables the missing controllers for the children of a directory.
// Each is a write of its own: of several in one write the kernel takes all or
// none.
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

// inheritCPUSet gives a cgroup of v1 the CPUs and memory nodes of its parent if
// it has none: nothing can run where there are none. A cpuset of v1 starts out
// empty, unlike one of v2, and the kernel then refuses every process
// (cgroup-v1/cpusets).
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
		// Whatever was set before, by a CPU policy for example, stays.
		if has != "" {
			continue
		}
		if has, err = d.cpuset(ctx, parent, file); err != nil {
			return err
		}
		// The parent may be as new as its child; the recursion ends at the root,
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
		// From now on the kernel does the same for the parent's children, and theirs, those
		// of containers too, when they are made. With each write it lays out its scheduling
		// domains anew. Where it does not take that, the next child is filled as this one.
		_ = d.write(ctx, d.file("cpuset", parent, "cgroup.clone_children"), "1")
	}
	return nil
}

// fill gives a cgroup that was just made what r says, without a look at what it
// has: nothing yet. Reading each file first would double the calls on the path
// that a pod's start waits for.
func (d *driver) fill(ctx context.Context, cgroup string, r Resources) error {
	// systemd has to be asked first, which apply does.
	if d.units != nil {
		return d.apply(ctx, cgroup, r)
	}
	return errors.Join(d.writeAll(ctx, cgroup, d.on.version.writes(r, d.on.pages, noLimits))...)
}

// apply gives a cgroup what r says, as far as it has not got it. A value that
// the kernel does not take keeps none of the others back. Values that are right
// already are not written: a write to memory.max may reclaim memory, and a
// change of a unit is a call over D-Bus.
func (d *driver) apply(ctx context.Context, cgroup string, r Resources) error {
	// Only v1 has values whose order of writing depends on what is there.
	have := level{memorySwap: Unlimited}
	if d.on.version == V1 && (r.CPUQuota != nil || r.MemorySwap != nil) {
		var err error
		if have, err = d.level(ctx, cgroup); err != nil {
			return err
		}
	}
	todo, errs := d.diff(ctx, cgroup, d.on.version.writes(r, d.on.pages, have))
	// systemd goes before the files: it would write its own values over them when
	// it applies the unit's properties. What it did not set, or does not know of,
	// is written after it.
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

// writeAll writes what it can. A missing file of an optional value is no error;
// EBUSY of the memory controller, which v1 reports for a limit below the usage,
// becomes ErrInUse.
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

// diff are the writes that would change anything. Values whose files cannot be
// read are left out of todo and reported in errs. A missing file of an optional
// value is neither.
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

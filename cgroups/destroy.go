package cgroups

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"
	"time"

	"github.com/nodewright/nodewright/internal/retry"
)

// How often a cgroup's removal is tried, and how long between the first two
// tries and between the last; each wait is twice the one before: 1.3 seconds in
// all. A killed process stays in its cgroup until it has exited, so that a
// first rmdir after a kill often finds the cgroup busy.
const (
	destroyTries    = 9
	destroyWait     = 5 * time.Millisecond
	lastDestroyWait = 640 * time.Millisecond
)

// destroy kills what is in a cgroup and removes it with all below it. One that
// is not there is removed. On failure it says which processes are left.
func (d *driver) destroy(ctx context.Context, cgroup string, kill func(pid int) error) (left []int, err error) {
	// Nothing that holds processes can be removed, so that this harms nobody;
	// systemd would end them.
	if d.units == nil {
		if err = d.remove(ctx, cgroup); err == nil || errors.Is(err, ErrNoAnswer) {
			return nil, err
		}
	}
	wait := retry.Backoff{First: destroyWait, Max: lastDestroyWait}
	for try := range destroyTries {
		if try > 0 && !wait.Wait(ctx) {
			return left, errors.Join(ctx.Err(), err)
		}
		// Processes are listed anew each time: a fork may have escaped the kill
		// before, where cgroup.kill is not available.
		if left, err = d.pids(ctx, cgroup); err != nil {
			return nil, err
		}
		// An agent that was started in a pod's cgroup, by mistake or in a test, must
		// not kill itself.
		if slices.Contains(left, os.Getpid()) {
			return left, fmt.Errorf("process %d is this one", os.Getpid())
		}
		if len(left) > 0 {
			err = d.killAll(ctx, cgroup, left, kill)
			if err != nil {
				// Removing right away would fail for certain; the next try lists those that
				// remain.
				continue
			}
		}
		// With nobody left, or killed just now, the removal is worth a try before the
		// wait.
		if err = d.remove(ctx, cgroup); err == nil {
			return nil, nil
		}
		// A call that hangs blocks further ones for the same directory; trying again
		// would only wait for nothing.
		if errors.Is(err, ErrNoAnswer) {
			return left, err
		}
	}
	return left, err
}

// killAll kills the processes of a cgroup, on v2 all at one stroke that no fork
// escapes (cgroup.kill, since Linux 5.14).
func (d *driver) killAll(ctx context.Context, cgroup string, pids []int, kill func(pid int) error) error {
	// Only a missing file falls through to single kills, on kernels before 5.14.
	if d.on.version == V2 {
		err := d.write(ctx, path.Join(d.on.points[0], cgroup, "cgroup.kill"), "1")
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	var errs []error
	// All are tried: one process that cannot be killed must not save the others.
	for _, pid := range pids {
		errs = append(errs, kill(pid))
	}
	return errors.Join(errs...)
}

// remove removes a cgroup in every hierarchy, and all below it. It kills
// nobody; with systemd, stopping the unit does.
func (d *driver) remove(ctx context.Context, cgroup string) error {
	// systemd goes first: if directories went away below it, it would keep a unit
	// of a cgroup that is not there.
	if d.units != nil {
		unit, parent := unitOf(cgroup)
		if err := d.do(ctx, "stop", unit, func() error { return d.units.Stop(ctx, unit, parent) }); err != nil {
			return err
		}
	}
	var errs []error
	// systemd removes only the directories that it manages itself. On v1 some
	// hierarchies may be busy; the others are emptied all the same.
	for _, dir := range d.on.dirsToo(cgroup) {
		errs = append(errs, d.removeDir(ctx, dir))
	}
	return errors.Join(errs...)
}

// removeDir removes a directory with all below it. Most have no children, so
// that rmdir comes first and the directory is listed only if it fails. A
// directory that is not there is removed.
func (d *driver) removeDir(ctx context.Context, dir string) error {
	err := d.rmdir(ctx, dir)
	switch {
	case err == nil || gone(err):
		return nil
	// The kernel says EBUSY for a cgroup with children or processes; ENOTEMPTY is
	// what other file systems say.
	case !errors.Is(err, syscall.EBUSY) && !errors.Is(err, syscall.ENOTEMPTY):
		return err
	}
	children, listErr := d.list(ctx, dir)
	if gone(listErr) {
		return nil
	}
	// Busy without children: processes are in it, which is for the caller to end.
	if listErr != nil || len(children) == 0 {
		return errors.Join(err, listErr)
	}
	// Depth is bounded by what the container made of its own cgroup.
	for _, c := range children {
		if err := d.removeDir(ctx, path.Join(dir, c)); err != nil {
			return err
		}
	}
	if err := d.rmdir(ctx, dir); !gone(err) {
		return err
	}
	return nil
}

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

// destroyTries is the number of attempts of a removal. The first pause is destroyWait; it
// doubles up to lastDestroyWait: 1.3 seconds in all. A killed process stays in its cgroup until
// it has exited, so that the first rmdir after a kill often fails.
const (
	destroyTries    = 9
	destroyWait     = 5 * time.Millisecond
	lastDestroyWait = 640 * time.Millisecond
)

// destroy kills the processes of a cgroup, and removes the cgroup and all cgroups below it. If
// the cgroup does not exist, destroy returns nil. After a failure it returns the remaining
// processes.
func (d *driver) destroy(ctx context.Context, cgroup string, kill func(pid int) error) (left []int, err error) {
	// rmdir fails while there are processes, and so is safe to try first. systemd,
	// however, would kill them.
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
		// Processes are listed again each time: without cgroup.kill, a fork may have escaped the
		// previous kill.
		if left, err = d.pids(ctx, cgroup); err != nil {
			return nil, err
		}
		// An agent that was started in a pod's cgroup, by mistake or in a test, must
		// not kill itself.
		if slices.Contains(left, os.Getpid()) {
			return left, fmt.Errorf("process %d in the cgroup is the agent itself", os.Getpid())
		}
		if len(left) > 0 {
			err = d.killAll(ctx, cgroup, left, kill)
			if err != nil {
				// A removal now would fail for certain; the next try lists the
				// processes that remain.
				continue
			}
		}
		// Without processes, or right after a kill, a removal is tried before the
		// wait.
		if err = d.remove(ctx, cgroup); err == nil {
			return nil, nil
		}
		// A hung call blocks further ones for the same directory: another try would
		// fail too.
		if errors.Is(err, ErrNoAnswer) {
			return left, err
		}
	}
	return left, err
}

// killAll kills the processes of a cgroup. On v2 the file cgroup.kill (since Linux
// 5.14) kills all at once, so that no fork escapes.
func (d *driver) killAll(ctx context.Context, cgroup string, pids []int, kill func(pid int) error) error {
	// Only a missing file falls through to single kills, on kernels before 5.14.
	if d.on.version == V2 {
		err := d.write(ctx, path.Join(d.on.points[0], cgroup, "cgroup.kill"), "1")
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	var errs []error
	// A process that cannot be killed does not stop the others from being killed.
	for _, pid := range pids {
		errs = append(errs, kill(pid))
	}
	return errors.Join(errs...)
}

// remove removes a cgroup and all below it in every hierarchy. It kills nothing
// itself; systemd kills the processes of a unit that it stops.
func (d *driver) remove(ctx context.Context, cgroup string) error {
	// systemd goes first: if the directories were removed before, it would keep the
	// unit.
	if d.units != nil {
		unit, parent := unitOf(cgroup)
		if err := d.do(ctx, "stop", unit, func() error { return d.units.Stop(ctx, unit, parent) }); err != nil {
			return err
		}
	}
	var errs []error
	// systemd removes only the directories that it manages itself. On v1 some
	// hierarchies may be busy; the others are removed nevertheless.
	for _, dir := range d.on.dirsToo(cgroup) {
		errs = append(errs, d.removeDir(ctx, dir))
	}
	return errors.Join(errs...)
}

// removeDir removes a directory with all below it. It lists the children only after
// rmdir failed, since most directories have none. A directory that does not exist
// is a success.
func (d *driver) removeDir(ctx context.Context, dir string) error {
	err := d.rmdir(ctx, dir)
	switch {
	case err == nil || gone(err):
		return nil
	// The kernel returns EBUSY for a cgroup with children or processes; other file
	// systems return ENOTEMPTY.
	case !errors.Is(err, syscall.EBUSY) && !errors.Is(err, syscall.ENOTEMPTY):
		return err
	}
	children, listErr := d.list(ctx, dir)
	if gone(listErr) {
		return nil
	}
	// Busy without children: it has processes, which the caller has to end.
	if listErr != nil || len(children) == 0 {
		return errors.Join(err, listErr)
	}
	// The recursion is as deep as the cgroups that the container created.
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

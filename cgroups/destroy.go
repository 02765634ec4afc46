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
// all.
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
		if left, err = d.pids(ctx, cgroup); err != nil {
			return nil, err
		}
		if slices.Contains(left, os.Getpid()) {
			return left, fmt.Errorf("process %d is this one", os.Getpid())
		}
		if len(left) > 0 {
			err = d.killAll(ctx, cgroup, left, kill)
			if err != nil {
				continue
			}
		}
		if err = d.remove(ctx, cgroup); err == nil {
			return nil, nil
		}
		if errors.Is(err, ErrNoAnswer) {
			return left, err
		}
	}
	return left, err
}

// killAll kills the processes of a cgroup, on v2 all at one stroke that no fork
// escapes (cgroup.kill, since Linux 5.14).
func (d *driver) killAll(ctx context.Context, cgroup string, pids []int, kill func(pid int) error) error {
	if d.on.version == V2 {
		err := d.write(ctx, path.Join(d.on.points[0], cgroup, "cgroup.kill"), "1")
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	var errs []error
	for _, pid := range pids {
		errs = append(errs, kill(pid))
	}
	return errors.Join(errs...)
}

// remove removes a cgroup in every hierarchy, and all below it.
func (d *driver) remove(ctx context.Context, cgroup string) error {
	if d.units != nil {
		unit, parent := unitOf(cgroup)
		if err := d.do(ctx, "stop", unit, func() error { return d.units.Stop(ctx, unit, parent) }); err != nil {
			return err
		}
	}
	var errs []error
	for _, dir := range d.on.dirsToo(cgroup) {
		errs = append(errs, d.removeDir(ctx, dir))
	}
	return errors.Join(errs...)
}

// removeDir removes a directory with all below it.
func (d *driver) removeDir(ctx context.Context, dir string) error {
	err := d.rmdir(ctx, dir)
	switch {
	case err == nil || gone(err):
		return nil
	case !errors.Is(err, syscall.EBUSY) && !errors.Is(err, syscall.ENOTEMPTY):
		return err
	}
	children, listErr := d.list(ctx, dir)
	if gone(listErr) {
		return nil
	}
	if listErr != nil || len(children) == 0 {
		return errors.Join(err, listErr)
	}
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

package cgroups

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"
)

// How often a cgroup's removal is tried, and how long between the first two
// tries; each wait is twice the one before: 1.3 seconds in all.
const (
	destroyTries = 9
	destroyWait  = 5 * time.Millisecond
)

// destroy kills what is in a cgroup and removes it with all below it. One that
// is not there is removed. On failure it tells which processes are left.
func (d *driver) destroy(ctx context.Context, cgroup string, kill func(pid int) error) (left []int, err error) {
	wait := destroyWait
	for try := range destroyTries {
		if try > 0 {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return left, errors.Join(ctx.Err(), err)
			}
			wait *= 2
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
		errs = append(errs, d.walk(ctx, dir, func(dir string) error {
			if err := d.rmdir(ctx, dir); err != nil && !gone(err) {
				return err
			}
			return nil
		}))
	}
	return errors.Join(errs...)
}

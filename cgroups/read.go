package cgroups

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/nodewright/nodewright/internal/kernel"
)

// file returns the path of a cgroup's file in the hierarchy of controller, which
// the machine must have.
func (d *driver) file(controller, cgroup, name string) string {
	dir, _ := d.on.dir(controller, cgroup)
	return path.Join(dir, name)
}

// cpuset reads a file of one line of v1's cpuset, without the newline.
func (d *driver) cpuset(ctx context.Context, cgroup, name string) (string, error) {
	data, err := d.read(ctx, d.file("cpuset", cgroup, name))
	return strings.TrimSpace(string(data)), err
}

// number reads a file with one number. The kernel's word for no limit becomes Unlimited. On v1 a
// controller that the machine lacks is a ControllerError. A missing file is ErrNotExist; on v2
// this may also mean that the controller is not enabled for the cgroup.
func (d *driver) number(ctx context.Context, controller, cgroup, name string) (int64, error) {
	if _, ok := d.on.dir(controller, cgroup); !ok {
		return 0, &ControllerError{controller, cgroup}
	}
	data, err := d.read(ctx, d.file(controller, cgroup, name))
	if gone(err) {
		return 0, fmt.Errorf("%s of %s: %w", name, cgroup, ErrNotExist)
	}
	if err != nil {
		return 0, err
	}
	n, err := parseLimit(data)
	if err != nil {
		return 0, fmt.Errorf("%s of %s: %w", name, cgroup, err)
	}
	return n, nil
}

// numberOr returns number's result. If the file or its controller is missing, it returns
// fallback. It is for values that not every kernel has.
func (d *driver) numberOr(ctx context.Context, controller, cgroup, name string, fallback int64) (int64, error) {
	n, err := d.number(ctx, controller, cgroup, name)
	var lacks *ControllerError
	if errors.Is(err, ErrNotExist) || errors.As(err, &lacks) {
		return fallback, nil
	}
	return n, err
}

// level reads the CPU and memory values of a cgroup. It reads all files even if one
// fails; the errors are joined.
func (d *driver) level(ctx context.Context, cgroup string) (level, error) {
	if d.on.version == V2 {
		return d.levelV2(ctx, cgroup)
	}
	var errs []error
	must := func(n int64, err error) int64 {
		errs = append(errs, err)
		return n
	}
	// Every v1 has shares and memory; quotas depend on CFS bandwidth control, and
	// memsw on swap accounting.
	out := level{
		share:      uint64(max(must(d.number(ctx, "cpu", cgroup, "cpu.shares")), 0)),
		quota:      must(d.numberOr(ctx, "cpu", cgroup, "cpu.cfs_quota_us", Unlimited)),
		period:     uint64(max(must(d.numberOr(ctx, "cpu", cgroup, "cpu.cfs_period_us", defaultPeriod)), 1)),
		memory:     must(d.number(ctx, "memory", cgroup, "memory.limit_in_bytes")),
		memorySwap: must(d.numberOr(ctx, "memory", cgroup, "memory.memsw.limit_in_bytes", Unlimited)),
	}
	return out, errors.Join(errs...)
}

// levelV2 does the work of level on cgroup v2, where swap is counted apart from memory and the
// limit of swap is not compared.
func (d *driver) levelV2(ctx context.Context, cgroup string) (level, error) {
	out := noLimits
	var errs []error
	must := func(n int64, err error) int64 {
		errs = append(errs, err)
		return n
	}
	if d.on.of["cpu"] != "" {
		out.share = uint64(max(must(d.number(ctx, "cpu", cgroup, "cpu.weight")), 0))
	}
	if d.on.of["memory"] != "" {
		out.memory = must(d.number(ctx, "memory", cgroup, "memory.max"))
	}
	out.min = must(d.numberOr(ctx, "memory", cgroup, memoryMin, 0))
	out.low = must(d.numberOr(ctx, "memory", cgroup, memoryLow, 0))
	data, err := d.read(ctx, d.file("cpu", cgroup, "cpu.max"))
	switch {
	case errors.Is(err, fs.ErrNotExist): // a kernel without quotas
	case err != nil:
		errs = append(errs, err)
	default:
		out.quota, out.period, err = parseCPUMax(data)
		errs = append(errs, err)
	}
	return out, errors.Join(errs...)
}

// memoryLimit returns the memory limit of a cgroup in bytes, or Unlimited.
func (d *driver) memoryLimit(ctx context.Context, cgroup string) (int64, error) {
	if d.on.version == V2 {
		return d.number(ctx, "memory", cgroup, "memory.max")
	}
	return d.number(ctx, "memory", cgroup, "memory.limit_in_bytes")
}

// memoryUsed returns the bytes charged to a cgroup, page cache included.
func (d *driver) memoryUsed(ctx context.Context, cgroup string) (int64, error) {
	if d.on.version == V2 {
		return d.number(ctx, "memory", cgroup, "memory.current")
	}
	return d.number(ctx, "memory", cgroup, "memory.usage_in_bytes")
}

// walk calls f for a directory and all below it, children first. Directories that are removed
// meanwhile are skipped. The first error ends the walk.
func (d *driver) walk(ctx context.Context, dir string, f func(dir string) error) error {
	children, err := d.list(ctx, dir)
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, c := range children {
		if err := d.walk(ctx, path.Join(dir, c), f); err != nil {
			return err
		}
	}
	return f(dir)
}

// pids returns the processes in a cgroup and below it, ascending. On v1 it reads
// all hierarchies: a process may be in the pod's cgroup in only one of them.
func (d *driver) pids(ctx context.Context, cgroup string) ([]int, error) {
	var out []int
	for _, dir := range d.on.dirsToo(cgroup) {
		err := d.walk(ctx, dir, func(dir string) error {
			data, err := d.read(ctx, path.Join(dir, "cgroup.procs"))
			switch {
			case gone(err) || errors.Is(err, errNotSupported): // of a threaded cgroup: its domain lists them
				return nil
			case err != nil:
				return err
			}
			out = append(out, kernel.ParsePIDs(data)...)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

package cgroups

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"

	"github.com/nodewright/nodewright/internal/kernel"
)

// Host manages the cgroups of processes outside pods: the agent, the runtime, the
// rest of the system. The zero value is this machine. Methods may run concurrently,
// and read the machine's hierarchies at each call. They use cgroupfs, never
// systemd.
type Host struct {
	FS FS // the default is the machine's file system
	// Kernel reports whether pid is a kernel thread, which cannot be moved. The
	// default checks for /proc/PID/exe, which kernel threads lack.
	Kernel func(pid int) bool
}

// Join moves a process with all its threads into a cgroup in every hierarchy. The
// cgroup is a path of cgroupfs; it is created if it does not exist. Existing
// children of the process stay in their cgroups. On v1 Join continues after one
// hierarchy refuses, and returns all errors.
func (h Host) Join(ctx context.Context, cgroup string, pid int) error {
	d, err := h.made(ctx, cgroup)
	if err != nil {
		return err
	}
	var errs []error
	// A write to cgroup.procs, unlike one to tasks, moves all threads of the
	// process.
	for _, dir := range d.on.dirs(cgroup) {
		errs = append(errs, d.write(ctx, path.Join(dir, "cgroup.procs"), strconv.Itoa(pid)))
	}
	return errors.Join(errs...)
}

// Remove removes a cgroup and those below it from every hierarchy. It returns an
// error if they have processes, and nil if the cgroup does not exist.
func (h Host) Remove(ctx context.Context, cgroup string) error {
	d, err := h.driver(ctx)
	if err != nil {
		return err
	}
	return d.remove(ctx, cgroup)
}

// gatherRounds limits how often Gather searches for processes that started
// meanwhile. A machine that keeps starting processes in the root must not block
// Gather forever.
const gatherRounds = 10

// Gather moves the processes in the root of each hierarchy into a cgroup, which is created if it
// does not exist. Process 1 and kernel threads are not moved. It returns the number of moves. It
// is not an error if a process ends during the call.
func (h Host) Gather(ctx context.Context, cgroup string) (moved int, err error) {
	d, err := h.made(ctx, cgroup)
	if err != nil {
		return 0, err
	}
	kernel := h.Kernel
	if kernel == nil {
		kernel = func(pid int) bool {
			_, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
			return errors.Is(err, fs.ErrNotExist)
		}
	}
	var errs []error
	// On v1 each hierarchy has a root of its own, with other processes in it.
	for _, point := range d.on.points {
		// A child that was forked between the read and the move stays in the root;
		// the next round finds it.
		for range gatherRounds {
			data, err := d.read(ctx, path.Join(point, "cgroup.procs"))
			if err != nil {
				errs = append(errs, err)
				break
			}
			again := false
			for s := range strings.FieldsSeq(string(data)) {
				pid, err := strconv.Atoi(s)
				if err != nil || pid <= 1 || kernel(pid) {
					continue // 0 is a process of another PID namespace
				}
				switch err := d.write(ctx, path.Join(point, cgroup, "cgroup.procs"), s); {
				case err == nil:
					moved, again = moved+1, true
				case !errors.Is(err, syscall.ESRCH) && !errors.Is(err, syscall.EINVAL): // gone, or a thread of the kernel after all
					errs = append(errs, err)
				}
			}
			if !again {
				break
			}
		}
	}
	return moved, errors.Join(errs...)
}

// Of returns the cgroup of a process as a path of cgroupfs. It returns an error if the
// hierarchies of memory and of CPU time have different paths: on v1 the statistics of a process
// are read from one path.
func (h Host) Of(ctx context.Context, pid int) (string, error) {
	d, err := h.driver(ctx)
	if err != nil {
		return "", err
	}
	data, err := d.read(ctx, fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "", err
	}
	of, err := kernel.ParseCgroups(data)
	if err != nil {
		return "", fmt.Errorf("process %d: %w", pid, err)
	}
	if d.on.version == V2 {
		if of[""] == "" {
			return "", fmt.Errorf("process %d: %w", pid, ErrNotExist)
		}
		return of[""], nil
	}
	memory, cpu := of["memory"], of["cpuacct"]
	if memory == "" || memory != cpu {
		return "", fmt.Errorf("process %d is in %q for memory and in %q for CPU time; want one cgroup", pid, memory, cpu)
	}
	return memory, nil
}

// Exists returns nil if a cgroup exists, ErrNotExist if not, and a ControllerError
// if it lacks a controller.
func (h Host) Exists(ctx context.Context, cgroup string) error {
	d, err := h.driver(ctx)
	if err != nil {
		return err
	}
	return d.exists(ctx, cgroup)
}

// made creates a cgroup and its missing ancestors, unless the cgroup exists. It returns the driver.
func (h Host) made(ctx context.Context, cgroup string) (*driver, error) {
	d, err := h.driver(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := d.create(ctx, parseCgroupfs(cgroup)); err != nil {
		return nil, fmt.Errorf("cgroup %s: %w", cgroup, err)
	}
	return d, nil
}

// driver returns a driver for the machine's version, with metrics that are not
// exported and the default timeout. Its root is empty: it may create any cgroup.
func (h Host) driver(ctx context.Context) (*driver, error) {
	met, err := newMetrics(nil)
	if err != nil {
		return nil, err
	}
	fsys := h.FS
	if fsys == nil {
		fsys = osFS{}
	}
	f := files{Calls: newCalls(callTimeout, met), fs: fsys}
	on, err := detect(ctx, f, 0)
	if err != nil {
		return nil, err
	}
	return &driver{files: f, on: on, page: int64(os.Getpagesize())}, nil
}

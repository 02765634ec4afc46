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
)

// Host is what runs on a node beside its pods: the agent, the runtime, the rest
// of the system. The zero value is this machine. Methods may run concurrently,
// and look at the machine's hierarchies anew at each call. They use cgroupfs,
// never systemd.
type Host struct {
	FS FS // the machine's
	// Kernel distinguishes a thread of the kernel, which cannot be moved, from a
	// process; it is asked for /proc/PID/exe, which the kernel's have not.
	Kernel func(pid int) bool
}

// Join moves a process with all its threads into a cgroup of every hierarchy.
// The cgroup, as cgroupfs has it, is made if it is not there. Children that the
// process has already stay where they are. On v1 it goes on if one hierarchy
// refuses, and returns all errors.
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

// Remove removes a cgroup, with those below it, from every hierarchy. It is an error
// if there are processes in them, and none if it is not there.
func (h Host) Remove(ctx context.Context, cgroup string) error {
	d, err := h.driver(ctx)
	if err != nil {
		return err
	}
	return d.remove(ctx, cgroup)
}

// gatherRounds is how often Gather looks again for processes that were started
// meanwhile. A machine that keeps starting processes in the root must not hold
// it forever.
const gatherRounds = 10

// Gather moves the processes that are in the root of a hierarchy, and so in no
// cgroup, into one that is made if it is not there: all but the first process
// of the machine and the threads of the kernel. It returns how many moves it
// made. Processes that end meanwhile are no errors.
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
		// another round finds it.
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

// Of is the cgroup of a process, as cgroupfs has it. It is an error if the
// hierarchies of memory and of CPU time do not agree. On v1 both have to be the
// same, because statistics of a process are read from one path.
func (h Host) Of(ctx context.Context, pid int) (string, error) {
	d, err := h.driver(ctx)
	if err != nil {
		return "", err
	}
	data, err := d.read(ctx, fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "", err
	}
	of, err := ParseProcCgroup(data)
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

// Exists returns nil if a cgroup is there, and ErrNotExist if it is not. A
// cgroup that lacks a controller is a ControllerError.
func (h Host) Exists(ctx context.Context, cgroup string) error {
	d, err := h.driver(ctx)
	if err != nil {
		return err
	}
	return d.exists(ctx, cgroup)
}

// made makes a cgroup with those above it, unless it is there, and returns the
// driver to use it with.
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

// driver returns a driver for the version that the machine has, with metrics
// that nobody collects and the default timeout. Its root is empty: any cgroup
// may be made.
func (h Host) driver(ctx context.Context) (*driver, error) {
	met, err := newMetrics(nil)
	if err != nil {
		return nil, err
	}
	fsys := h.FS
	if fsys == nil {
		fsys = osFS{}
	}
	f := files{calls: newCalls(Config{}.withDefaults().CallTimeout, met), fs: fsys}
	on, err := detect(ctx, f, 0)
	if err != nil {
		return nil, err
	}
	return &driver{files: f, on: on, page: int64(os.Getpagesize())}, nil
}

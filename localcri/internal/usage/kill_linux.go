package usage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/kernel"
	"github.com/nodewright/nodewright/internal/safefile"
)

// Timeouts of a kill.
const (
	killTimeout   = 10 * time.Second       // in total
	freezeTimeout = 200 * time.Millisecond // a task in uninterruptible sleep (D) does not freeze
	killPause     = 2 * time.Millisecond   // between two reads
)

// maxBelow limits the number of descendants of a cgroup that are read, and maxDeep limits their
// depth.
const (
	maxBelow = 16384
	maxDeep  = 64
)

// KillCgroup kills all processes of a cgroup and its descendants. It returns when SIGKILL was
// sent to each of them; a process in uninterruptible sleep may still exist then. No new process
// can escape: the kernel kills all at once (cgroup.kill), or the processes are frozen first. It
// is not an error if the cgroup does not exist. Concurrent calls for one cgroup share the work.
func (r *Reader) KillCgroup(ctx context.Context, cgroup string) error {
	if err := checkCgroup(cgroup); err != nil {
		return err
	}
	_, err := r.kills.Do(ctx, cgroup, func() (struct{}, error) { return struct{}{}, r.kill(cgroup) })
	return err
}

func (r *Reader) kill(cgroup string) error {
	if own, err := r.inside(os.Getpid(), cgroup); own || err != nil {
		return fmt.Errorf("cgroup %s has this process: %w", cgroup, errors.Join(err, fs.ErrInvalid))
	}
	if r.v2 {
		err := writeFile(filepath.Join(r.dir("", cgroup), "cgroup.kill"), "1")
		if err == nil || gone(err) && !r.there(cgroup) {
			return nil
		}
		if !gone(err) && !errors.Is(err, unix.EOPNOTSUPP) { // a threaded cgroup has no list of processes
			return err
		}
	}
	freeze := r.freezer(cgroup)
	if err := freeze(true); err != nil {
		return err
	}
	err := r.killEach(cgroup)
	return errors.Join(err, freeze(false))
}

func (r *Reader) there(cgroup string) bool {
	_, err := os.Lstat(r.dir("freezer", cgroup))
	return err == nil
}

// freezer returns a function that freezes and thaws all processes of a cgroup. It does not wait
// for a process that does not freeze in time, since such a process cannot create others either.
func (r *Reader) freezer(cgroup string) func(bool) error {
	file, states, shown := "freezer.state", map[bool]string{true: "FROZEN", false: "THAWED"}, "freezer.state"
	if r.v2 {
		file, states, shown = "cgroup.freeze", map[bool]string{true: "1", false: "0"}, "cgroup.events"
	}
	dir := r.dir("freezer", cgroup)
	return func(on bool) error {
		err := writeFile(filepath.Join(dir, file), states[on])
		if gone(err) {
			return nil // no such cgroup, or no freezer
		}
		if err != nil || !on {
			return err
		}
		for end := time.Now().Add(freezeTimeout); time.Now().Before(end); time.Sleep(killPause) {
			b, err := safefile.ReadFile(filepath.Join(dir, shown), maxFile)
			if err != nil || strings.TrimSpace(string(b)) == "FROZEN" || strings.Contains("\n"+string(b), "\nfrozen 1\n") {
				return nil
			}
			if !r.v2 { // a new task is frozen by the next write
				_ = writeFile(filepath.Join(dir, file), states[on])
			}
		}
		return nil
	}
}

// killEach sends SIGKILL to each process, until the list has no process that was not signalled
// yet.
func (r *Reader) killEach(cgroup string) error {
	killed := map[int]bool{}
	for end := time.Now().Add(killTimeout); ; {
		pids, err := r.Processes(cgroup)
		if err != nil {
			return err
		}
		fresh := 0
		for _, pid := range pids {
			if killed[pid] {
				continue
			}
			fresh++
			if err := r.killOne(pid, cgroup); err != nil {
				return err
			}
			killed[pid] = true
		}
		if fresh == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("cgroup %s: %d new processes %v after the first was killed: %w", cgroup, fresh, killTimeout, context.DeadlineExceeded)
		}
	}
}

// killOne kills a process if it is still in the cgroup: its PID may have been reused since it was
// listed. It uses a pidfd, which always refers to the same process.
func (r *Reader) killOne(pid int, cgroup string) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) { // EINVAL: it is a thread
		return nil
	}
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	defer func() { _ = unix.Close(fd) }()
	in, err := r.inside(pid, cgroup)
	if err != nil || !in {
		return err
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return os.NewSyscallError("pidfd_send_signal", err)
	}
	return nil
}

// inside reports whether a process is in a cgroup or in a descendant of it, in any hierarchy. For
// a process that has ended it returns false.
func (r *Reader) inside(pid int, cgroup string) (bool, error) {
	all, err := kernel.This.CgroupsOf(context.Background(), strconv.Itoa(pid))
	if errors.Is(err, kernel.ErrGone) {
		return false, nil
	}
	return in(all, cgroup), err
}

// in reports whether one of the cgroups of a process is the given cgroup or a descendant of it.
// cgroups has the process's cgroup in each hierarchy.
func in(cgroups map[string]string, cgroup string) bool {
	for _, processCgroup := range cgroups {
		if processCgroup == cgroup || strings.HasPrefix(processCgroup, cgroup+"/") {
			return true
		}
	}
	return false
}

// hierarchies are the v1 hierarchies that contain every process of a container.
var hierarchies = []string{"freezer", "pids", "memory"}

// Processes returns the processes of a cgroup and its descendants. If the cgroup does not exist,
// there are none.
func (r *Reader) Processes(cgroup string) ([]int, error) {
	if err := checkCgroup(cgroup); err != nil {
		return nil, err
	}
	found, in := map[int]bool{}, hierarchies
	if r.v2 {
		in = in[:1]
	}
	var out []int
	for _, h := range in {
		left := maxBelow
		err := below(r.dir(h, cgroup), maxDeep, &left, func(dir string) error {
			b, err := safefile.ReadFile(filepath.Join(dir, "cgroup.procs"), maxProcs)
			if gone(err) || errors.Is(err, unix.EOPNOTSUPP) { // a threaded cgroup: its domain lists the processes
				return nil
			}
			for _, pid := range kernel.ParsePIDs(b) {
				if !found[pid] {
					found[pid] = true
					out = append(out, pid)
				}
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// maxProcs is the limit for reading a list of processes, in bytes. That is enough for 4 million
// processes, the most that Linux allows.
const maxProcs = 32 << 20

func below(dir string, depth int, left *int, f func(dir string) error) error {
	if *left--; *left < 0 || depth == 0 {
		return fmt.Errorf("%s: more than %d cgroups, or deeper than %d", dir, maxBelow, maxDeep)
	}
	entries, err := safefile.Entries(dir, maxBelow)
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := below(filepath.Join(dir, e.Name()), depth-1, left, f); err != nil {
				return err
			}
		}
	}
	return f(dir)
}

// gone reports whether an error means that a cgroup or process no longer exists.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ESRCH)
}

func writeFile(path, value string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	_, err = unix.Write(fd, []byte(value))
	_ = unix.Close(fd)
	if err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

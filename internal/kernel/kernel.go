// Package kernel reads the files of Linux in /proc, /sys and cgroups. The size of each file and
// the time of each call are limited. Equal contents are always parsed in the same way.
package kernel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"sync/atomic"
	"time"
)

// Errors of all functions. Other errors are those of system calls. errors.Is and errors.As find
// the error of the system call that each of these wraps.
var (
	// ErrAbsent means that this kernel has no such file or line.
	ErrAbsent = errors.New("the kernel has no such value")
	// ErrGone means that the process or cgroup does not exist any more.
	ErrGone = errors.New("the process or cgroup does not exist any more")
	// ErrNoAnswer means that a call did not return in time. It continues; until it returns, calls
	// for the same file fail at once.
	ErrNoAnswer = errors.New("no answer")
	// ErrTooLong means that a file or list is longer than its limit.
	ErrTooLong = errors.New("longer than its limit")
)

// FormatError means that a known value in a file cannot be parsed. Unknown lines and keys are
// skipped, since newer kernels add them.
type FormatError struct {
	File string // its name, such as memory.max
	Got  string
	Want string
}

func (e *FormatError) Error() string { return fmt.Sprintf("%s: %.80q; want %s", e.File, e.Got, e.Want) }

// Limits of files in bytes, and of lists in names.
const (
	maxStat  = 4 << 10  // /proc/PID/stat
	maxValue = 4 << 10  // one value, PSI, /proc/loadavg
	maxTable = 1 << 20  // memory.stat, io.stat, /proc/stat, /proc/net/dev, /proc/PID/cgroup
	maxSmall = 64 << 10 // /proc/meminfo, /proc/swaps, /proc/PID/status
	maxProcs = 64 << 20 // cgroup.procs: 4,194,304 processes, the most that Linux may have
	maxNames = 1 << 16  // cgroups in a cgroup, sizes of huge pages
)

// Options configures a Reader.
type Options struct {
	Proc, Sys, Cgroups Files         // /proc, /sys and /sys/fs/cgroup of this machine
	Timeout            time.Duration // of each call; the default is 5 s
}

// Reader reads one machine. Its methods may be called from any goroutine. A call that hangs is
// abandoned: see [Calls].
type Reader struct {
	proc, sys, cgroups Files
	calls              *Calls
	v2                 atomic.Bool // the controllers are of v2: not asked again
}

// New returns a Reader.
func New(o Options) *Reader {
	or := func(f Files, dir string) Files {
		if f == nil {
			return Dir(dir)
		}
		return f
	}
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second
	}
	return &Reader{
		proc: or(o.Proc, "/proc"), sys: or(o.Sys, "/sys"), cgroups: or(o.Cgroups, "/sys/fs/cgroup"),
		calls: NewCalls(o.Timeout, func(by int) { hanging.Add(int64(by)) }),
	}
}

// At returns a Reader of the machine whose root is given, such as os.DirFS("/host"). If root is
// nil, it reads this machine.
func At(root fs.FS) *Reader {
	if root == nil {
		return New(Options{})
	}
	return New(Options{Proc: below{Of(root), "proc/"}, Sys: below{Of(root), "sys/"}, Cgroups: below{Of(root), "sys/fs/cgroup/"}})
}

var hanging atomic.Int64

// Hanging returns how many calls of all Readers of this process did not return in time and still
// run.
func Hanging() int64 { return hanging.Load() }

// This is the Reader of this machine.
var This = New(Options{})

// read reads a file of /proc or /sys.
func (r *Reader) read(ctx context.Context, files Files, name string, limit int) ([]byte, error) {
	return do(ctx, r.calls, name, func() ([]byte, error) { return files.Read(name, limit) })
}

// do makes a call that returns a value.
func do[T any](ctx context.Context, c *Calls, name string, f func() (T, error)) (T, error) {
	var late, zero T
	err := c.Do(ctx, "read", name, func() (err error) {
		late, err = f()
		return err
	})
	if err != nil {
		return zero, err // a call that comes late still writes its value
	}
	return late, nil
}

// Process is a process at one time.
type Process struct {
	State  byte   // R, S, D, Z and others
	Parent int    // process ID of its parent
	Group  int    // ID of its process group
	Start  uint64 // ticks since the boot: with the ID it names one process
	Exit   int32  // wait status of a zombie; 0 if the reader may not see it
}

// Ended reports whether the process has ended and only waits for its parent.
func (p Process) Ended() bool { return p.State == 'Z' || p.State == 'X' }

// Process reads /proc/PID/stat. If there is no such process, the error is ErrGone.
func (r *Reader) Process(ctx context.Context, pid int) (Process, error) {
	b, err := r.read(ctx, r.proc, strconv.Itoa(pid)+"/stat", maxStat)
	if errors.Is(err, ErrAbsent) {
		return Process{}, &readError{ErrGone, err}
	}
	if err != nil {
		return Process{}, err
	}
	return parseProcess(b)
}

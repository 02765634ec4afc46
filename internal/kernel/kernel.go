// Package kernel reads and parses files of Linux in /proc, /sys and /sys/fs/cgroup. It limits the
// size of each file and the time of each call. All packages of this module use it, so that they
// parse these files in the same way.
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

// Errors of all functions. Other errors are errors of system calls. Where one of these stands for an
// error of a system call, errors.Is and errors.As also find that error.
var (
	// ErrAbsent means that this kernel has no such file or line.
	ErrAbsent = errors.New("the kernel has no such value")
	// ErrGone means that the process or cgroup does not exist any more.
	ErrGone = errors.New("the process or cgroup does not exist any more")
	// ErrNoAnswer means that a call did not return in time. The call continues. Until it returns,
	// further calls for the same file fail at once.
	ErrNoAnswer = errors.New("no answer")
	// ErrTooLong means that a file or list is longer than its limit.
	ErrTooLong = errors.New("longer than its limit")
)

// FormatError means that a known value in a file cannot be parsed. Unknown lines and keys are
// skipped, since newer kernels add them.
type FormatError struct {
	File string // the file's name, such as memory.max
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
	maxProcs = 64 << 20 // cgroup.procs: 4,194,304 process IDs, the maximum of Linux
	maxNames = 1 << 16  // cgroups in a cgroup, sizes of huge pages
)

// Options configures a Reader.
type Options struct {
	Proc, Sys, Cgroups Files         // default: /proc, /sys and /sys/fs/cgroup of this machine
	Timeout            time.Duration // of each call; default: 5 s
}

// Reader reads the kernel's files of one machine. Its methods may be called from any goroutine. They
// abandon a call that hangs: see [Calls].
type Reader struct {
	proc, sys, cgroups Files
	calls              *Calls
	v2                 atomic.Bool // the controllers are on v2; false if not known
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

// At returns a Reader of the machine with the root directory root, such as os.DirFS("/host"). If
// root is nil, it reads this machine.
func At(root fs.FS) *Reader {
	if root == nil {
		return New(Options{})
	}
	return New(Options{Proc: below{Of(root), "proc/"}, Sys: below{Of(root), "sys/"}, Cgroups: below{Of(root), "sys/fs/cgroup/"}})
}

var hanging atomic.Int64

// Hanging returns the number of abandoned calls that have not returned, of all Readers of this
// process.
func Hanging() int64 { return hanging.Load() }

// This is the Reader of this machine.
var This = New(Options{})

// read reads a file of /proc or /sys.
func (r *Reader) read(ctx context.Context, files Files, name string, limit int) ([]byte, error) {
	return do(ctx, r.calls, name, func() ([]byte, error) { return files.Read(name, limit) })
}

// do makes a read call that returns a value.
func do[T any](ctx context.Context, c *Calls, name string, f func() (T, error)) (T, error) {
	var late, zero T
	err := c.Do(ctx, "read", name, func() (err error) {
		late, err = f()
		return err
	})
	if err != nil {
		return zero, err // an abandoned call may still write to late
	}
	return late, nil
}

// Process is the state of a process at one time.
type Process struct {
	State  byte   // R, S, D, Z and others
	Parent int    // process ID of its parent
	Group  int    // ID of its process group
	Start  uint64 // clock ticks from the boot to the start; unique together with the ID
	Exit   int32  // wait status of a zombie; 0 without the permission to read it
}

// Ended reports whether the process is a zombie: it has exited, and its parent has not waited for
// it yet.
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

//go:build linux

package localcri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/kernel"
	"github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/localcri/internal/life"
)

// processes gives access to the processes of the machine.
type processes interface {
	// Start returns the start time of a process (field 22 of its stat), which distinguishes it
	// from a later process with the same PID, and the letter of its state. It returns an error if
	// there is no such process.
	Start(pid int) (start uint64, state string, err error)
	// EndCommands ends the processes of a program that have word among their arguments, and
	// returns when they are gone. Processes that are starting a container get some time to
	// finish; all others are killed at once.
	EndCommands(ctx context.Context, program, word string) error
	// Signal sends a signal to a process. It returns unix.ESRCH if the process is gone, and
	// errNoHandler if the kernel would drop the signal.
	Signal(id life.Process, s unix.Signal) error
}

// errNoHandler means that a process is PID 1 of a PID namespace and has no handler for a
// signal. Then the kernel drops the signal, even if its default action is to end the process
// (pid_namespaces(7)). It is also returned if the container's program has not been executed
// yet.
var errNoHandler = errors.New("the first process of a PID namespace has no handler of the signal")

// realProcesses reads /proc.
type realProcesses struct{}

func (realProcesses) Start(pid int) (uint64, string, error) {
	p, err := kernel.This.Process(context.Background(), pid)
	if err != nil {
		return 0, "", err
	}
	return p.Start, string(p.State), nil
}

// alive reports whether the process id exists and is not a zombie. If the kernel does not answer
// in time, the process counts as alive.
func alive(p processes, id life.Process) bool {
	start, state, err := p.Start(id.PID)
	if errors.Is(err, kernel.ErrNoAnswer) {
		return true
	}
	return err == nil && state != "Z" && state != "X" && (id.StartTime == 0 || start == id.StartTime)
}

// startTimeout is how long a running start of an OCI runtime may continue after its monitor has
// ended. It takes some milliseconds.
const startTimeout = 2 * time.Second

// EndCommands searches all processes of the machine. It is called for the commands of a
// monitor that has ended.
func (p realProcesses) EndCommands(ctx context.Context, program, word string) error {
	return p.endCommands(ctx, program, word, startTimeout)
}

// endCommands lets a start finish: if the OCI runtime is killed in the middle of its handshake,
// the container ends without having started.
func (p realProcesses) endCommands(ctx context.Context, program, word string, timeout time.Duration) error {
	for since := time.Now(); ; {
		found := false
		const most = 1 << 20
		names, err := safefile.Names("/proc", most)
		if err != nil {
			return err
		}
		for _, name := range names {
			pid, err := strconv.Atoi(name)
			if err != nil {
				continue
			}
			const longest = 64 << 10
			b, err := safefile.ReadFile("/proc/"+name+"/cmdline", longest)
			args := strings.Split(string(b), "\x00")
			if err != nil || args[0] != program || !slices.Contains(args, word) {
				continue
			}
			start, _, err := p.Start(pid)
			if err != nil || !alive(p, life.Process{PID: pid, StartTime: start}) {
				continue
			}
			found = true
			if slices.Contains(args, "start") && time.Since(since) < timeout {
				continue
			}
			if err := p.Signal(life.Process{PID: pid, StartTime: start}, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
		if !found {
			return nil
		}
		if !retry.Sleep(ctx, pollPause) {
			return context.Cause(ctx)
		}
	}
}

// Signal opens a pidfd before it compares the start time, so that the PID cannot be reused in
// between. If the start time cannot be read, the process does not count as gone.
func (p realProcesses) Signal(id life.Process, s unix.Signal) error {
	fd, err := unix.PidfdOpen(id.PID, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer func() { _ = f.Close() }()
	switch start, state, err := p.Start(id.PID); {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH):
		return unix.ESRCH
	case err != nil:
		return fmt.Errorf("read the state of process %d: %w", id.PID, err)
	case state == "Z", state == "X", id.StartTime != 0 && start != id.StartTime:
		return unix.ESRCH
	}
	const most = 64 << 10
	status, err := safefile.ReadFile(fmt.Sprintf("/proc/%d/status", id.PID), most)
	if err == nil && drops(status, s) {
		return errNoHandler
	}
	return unix.PidfdSendSignal(fd, s, nil, 0)
}

// runcInit is the beginning of the name of a process that runs runc and will execute the
// container's program next. Such a process has signal handlers that the program will not have.
const runcInit = "runc:["

// drops reports whether a signal would not reach the program of a process with this status
// (proc_pid_status(5)): the kernel drops the signal, or the program is not executed yet. A
// blocked or ignored signal is not dropped in this sense: a blocked one stays pending, and an
// ignored one was the program's choice.
func drops(status []byte, s unix.Signal) bool {
	if s == 0 || s == unix.SIGKILL || s == unix.SIGSTOP {
		return false
	}
	first, handled := false, uint64(0)
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		switch fields := strings.Fields(value); name {
		case "Name":
			if strings.HasPrefix(strings.TrimSpace(value), runcInit) {
				return true
			}
		case "NSpid":
			first = len(fields) > 1 && fields[len(fields)-1] == "1"
		case "SigBlk", "SigIgn", "SigCgt":
			mask, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			if err != nil {
				return false
			}
			handled |= mask
		}
	}
	return first && handled&(1<<(uint(s)-1)) == 0
}

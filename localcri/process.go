//go:build linux

package localcri

import (
	"bytes"
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

	"github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/localcri/internal/life"
)

// processes are those of the machine.
type processes interface {
	// Start returns field 22 of a process' stat, by which it is told apart from a
	// later one of its PID, and the letter of its state; an error if there is none.
	Start(pid int) (start uint64, state string, err error)
	// EndCommands ends the processes of a program that have a word among their
	// arguments, and returns when they are gone: those that start a container have a
	// while to do so, all others are killed.
	EndCommands(ctx context.Context, program, word string) error
	// Signal sends a signal to a process. It returns unix.ESRCH if that is gone, and
	// errNoHandler if the kernel would drop the signal.
	Signal(id life.Process, s unix.Signal) error
}

// errNoHandler means that a process is the first of a PID namespace and has no handler of
// a signal: the kernel drops the signal, whatever its default action is
// (pid_namespaces(7)). It also means that the program of the container was not executed yet.
var errNoHandler = errors.New("the first process of a PID namespace has no handler of the signal")

// realProcesses are in /proc.
type realProcesses struct{}

func (realProcesses) Start(pid int) (uint64, string, error) {
	const most = 8 << 10
	b, err := safefile.ReadFile(fmt.Sprintf("/proc/%d/stat", pid), most)
	if err != nil {
		return 0, "", err
	}
	return parseStat(b)
}

// parseStat reads what is behind the name, which may hold anything, of
// proc_pid_stat(5).
func parseStat(b []byte) (start uint64, state string, err error) {
	const startField = 22 - 3 // of those behind the name
	i := bytes.LastIndexByte(b, ')')
	fields := bytes.Fields(b[i+1:])
	if i < 0 || len(fields) <= startField {
		return 0, "", errors.New("stat of a process has too few fields")
	}
	start, err = strconv.ParseUint(string(fields[startField]), 10, 64)
	return start, string(fields[0]), err
}

// alive reports whether a process is the same and no zombie.
func alive(p processes, id life.Process) bool {
	start, state, err := p.Start(id.PID)
	return err == nil && state != "Z" && state != "X" && (id.StartTime == 0 || start == id.StartTime)
}

// startPatience is how long the start of an executor may go on without the monitor
// that wanted it. It takes some milliseconds.
const startPatience = 2 * time.Second

// EndCommands looks at all processes: it is for what a monitor left that died.
func (p realProcesses) EndCommands(ctx context.Context, program, word string) error {
	return p.endCommands(ctx, program, word, startPatience)
}

// endCommands lets a start end: a container whose executor is killed between the two
// sides of its handshake dies without having begun.
func (p realProcesses) endCommands(ctx context.Context, program, word string, patience time.Duration) error {
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
			if slices.Contains(args, "start") && time.Since(since) < patience {
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

// Signal opens the process before it compares, so that it cannot become another
// one in between. A process that cannot be looked at is no process that is gone.
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
		return fmt.Errorf("look at process %d: %w", id.PID, err)
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

// runcInit begins the name of the process in which runc is about to execute the program. It
// has handlers, which the program will not have.
const runcInit = "runc:["

// drops reports whether a signal does not reach the program of a process with this status
// (proc_pid_status(5)): the kernel drops it, or the program is still to be executed. A
// signal that is blocked is kept, and one that is ignored has come.
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

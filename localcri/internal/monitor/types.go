//go:build linux

package monitor

import (
	"os"
	"time"
)

// Container is all that a monitor needs to start a container.
type Container struct {
	ID string // of the container, unique among those of the monitor; at most 128 bytes

	// Create and Start are the executor's commands, an absolute path first. Create
	// leaves the PID of the container's first process in PIDFile and ends. It is
	// given the container's streams as its own; what it writes before its end is its
	// own output and not logged. Start lets the container's command begin.
	Create, Start []string

	Dir     string // working directory of the commands; "" is /
	PIDFile string // written by Create

	// ExecutorLog is the file that the commands log to (runc's --log). The last
	// line of it is the message of a step that fails. Empty: the last line that the
	// command wrote to its standard error.
	ExecutorLog string

	ConsoleSocket string // path of the unix socket on which the monitor takes the terminal's master; "" without a terminal
	FIFODir       string // the monitor makes stdin, stdout and stderr there (0666); only root may enter it
	ExitFile      string // where the exit record is renamed to; not on a disk that may be full or slow
	Log           string // the CRI log file, in a directory that exists; "" drains

	Stdin     bool // standard input stays open for clients that attach; otherwise it is empty
	StdinOnce bool // standard input ends with the first client that was attached to it
	Terminal  bool // needs ConsoleSocket

	// OOMFile is memory.events (cgroup v2) or memory.oom_control (v1) of the
	// container's cgroup, once it has one. Empty: Exit.OOM is never set.
	OOMFile string

	Record  []byte        // the caller's own, kept and given back in State; at most 32 KiB
	Timeout time.Duration // of Create and Start each; 0 is a minute
}

// Started describes which process is the container's first.
type Started struct {
	PID       int
	At        time.Time
	StartTime uint64 // field 22 of /proc/<pid>/stat, so that a PID used again is not taken for it; 0 if it had ended before
}

// StartError says that a container did not start.
type StartError struct {
	Step    string // "prepare", "create" or "start"
	Message string // the executor's last line, or what the monitor could not do
}

// Error names the step and gives the message.
func (e *StartError) Error() string { return e.Step + ": " + e.Message }

// Exit describes how a container ended.
type Exit struct {
	ID           string
	Code         int32     // status, 128 plus the signal, or what Reason reports
	StartedAt    time.Time // zero if that is not known
	At           time.Time
	OOM          bool   // it failed, and the kernel had killed a process of it as memory ran out
	LostLogBytes uint64 // that no disk took
	Reason       string // "", ReasonMonitorLost or ReasonNotExecuted
}

// ReasonMonitorLost is the reason of an end whose status nobody could tell: the
// monitor had died and its kernel does not keep the status.
const ReasonMonitorLost = "MonitorLost"

// ReasonNotExecuted is the reason of an end, with code 128, before any program was
// executed: the kernel had refused it when the executor's start had succeeded, as
// one of another architecture. The log has what the executor said of it.
const ReasonNotExecuted = "NotExecuted"

// Kept is what a monitor knows of a container. Of Started, Exit and StartError
// those are nil that have not come about.
type Kept struct {
	Container  Container
	Started    *Started
	Exit       *Exit
	StartError *StartError
	StdinShut  bool // standard input has ended
}

// State is what a monitor knows of all containers of a sandbox.
type State struct {
	Containers []Kept
}

// Event is one of what a monitor says by itself: one field is set.
type Event struct {
	Exit *Exit // a container ended; its exit record is in place
	Lost *Lost // the log could not be written, or can be again
}

// Lost says that log bytes of a container were lost.
type Lost struct {
	ID      string
	Bytes   uint64 // in all
	Message string // the error that began it; "" when lines are written again
}

// Exec is a process to run in a container.
type Exec struct {
	ID   string   // the container's
	Argv []string // the executor's command, an absolute path first, which leaves the process running (exec --detach) and its PID in PIDFile

	Dir           string
	PIDFile       string
	ExecutorLog   string // as Container's
	Terminal      bool
	ConsoleSocket string

	// Stdin, Stdout and Stderr become the process' streams; nil is /dev/null. The
	// monitor gets duplicates and closes them once the process has them: the
	// caller closes its own after Exec, or it never sees the end of a pipe.
	Stdin, Stdout, Stderr *os.File

	StartTimeout time.Duration // of the executor's command; 0 is a minute
	Timeout      time.Duration // of the process, from its start on; then it and its children are killed and Wait gives ErrTimeout. 0 is none

	// KillWithClient ends the process and its children when the connection of this
	// client ends, however it ends.
	KillWithClient bool
}

// Escrow is what the client of a monitor keeps so that a successor can go on:
// duplicates, owned by who asked for them. Files are nil where there are none.
type Escrow struct {
	Pidfd  *os.File // of the container's first process
	Stdin  *os.File // write end of standard input
	Master *os.File // of the terminal
}

// Close closes all of it.
func (e Escrow) Close() {
	for _, f := range []*os.File{e.Pidfd, e.Stdin, e.Master} {
		if f != nil {
			_ = f.Close()
		}
	}
}

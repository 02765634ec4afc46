//go:build linux

package monitor

import (
	"os"
	"time"
)

// Container has everything that a monitor needs to start a container.
type Container struct {
	ID string // unique among the monitor's containers; at most 128 bytes

	// Create and Start are the executor's commands, an absolute path first. Create writes the PID
	// of the container's first process to PIDFile and exits. Its standard streams become those of
	// the container; the output of Create itself is not logged. Start starts the container's
	// command.
	Create, Start []string

	Dir     string // working directory of the commands; "" means /
	PIDFile string // written by Create

	// ExecutorLog is the log file of the commands (runc's --log). Its last line is the message of
	// a failed step. If the file is empty, the message is the last line that the command wrote to
	// its standard error.
	ExecutorLog string

	ConsoleSocket string // path of the unix socket on which the monitor receives the terminal's master; "" without a terminal
	FIFODir       string // in which the monitor creates the FIFOs stdin, stdout and stderr (mode 0666); only root may enter it
	ExitFile      string // final path of the exit record; not on a disk that could be full or slow
	Log           string // the CRI log file, in an existing directory; "" discards the output

	Stdin     bool // standard input stays open for clients that attach; otherwise it is empty
	StdinOnce bool // standard input ends with the first attached client
	Terminal  bool // needs ConsoleSocket

	// OOMFile is memory.events (cgroup v2) or memory.oom_control (v1) of the container's cgroup.
	// If it is empty, Exit.OOM is never set.
	OOMFile string

	Record  []byte        // data of the caller, stored and returned in State; at most 32 KiB
	Timeout time.Duration // for Create and Start each; 0 means a minute
}

// Started identifies the container's first process.
type Started struct {
	PID       int
	At        time.Time
	StartTime uint64 // field 22 of /proc/<pid>/stat, to detect a reused PID; 0 if the process had ended before it was read
}

// StartError says that a container did not start.
type StartError struct {
	Step    string // "prepare", "create" or "start"
	Message string // the executor's last line, or the monitor's own error
}

// Error names the step and gives the message.
func (e *StartError) Error() string { return e.Step + ": " + e.Message }

// Exit describes how a container ended.
type Exit struct {
	ID           string
	Code         int32     // exit status, or 128 plus the signal; see also Reason
	StartedAt    time.Time // zero if not known
	At           time.Time
	OOM          bool   // the container failed after the kernel's OOM killer killed one of its processes
	LostLogBytes uint64 // bytes of the log that could not be written
	Reason       string // "", ReasonMonitorLost or ReasonNotExecuted
}

// ReasonMonitorLost is the reason if the exit status is unknown, because the monitor died and the
// kernel is too old to keep the status.
const ReasonMonitorLost = "MonitorLost"

// ReasonNotExecuted is the reason, with code 128, if the container's program was not executed.
// The executor's start command succeeded, but the kernel refused the program, for example
// because it is of another architecture. The log has the executor's message.
const ReasonNotExecuted = "NotExecuted"

// Kept is the state of a container in a monitor. Started, Exit and StartError are nil until the
// container has started, ended or failed to start.
type Kept struct {
	Container  Container
	Started    *Started
	Exit       *Exit
	StartError *StartError
	StdinShut  bool // standard input has ended
}

// State is the state of all containers of a sandbox in their monitor.
type State struct {
	Containers []Kept
}

// Event is a notification from a monitor. Exactly one field is set.
type Event struct {
	Exit *Exit // a container ended; its exit record is in place
	Lost *Lost // the log could not be written, or can be written again
}

// Lost says that log bytes of a container were lost.
type Lost struct {
	ID      string
	Bytes   uint64 // total
	Message string // the first error; "" when the log can be written again
}

// Exec is a process to run in a container.
type Exec struct {
	ID   string   // of the container
	Argv []string // the executor's command, an absolute path first; it leaves the process running (exec --detach) and writes its PID to PIDFile

	Dir           string
	PIDFile       string
	ExecutorLog   string // as in Container
	Terminal      bool
	ConsoleSocket string

	// Stdin, Stdout and Stderr become the process's streams; nil means /dev/null. The monitor
	// gets duplicates, and closes them once the process has them. The caller must close its
	// own files after Exec; otherwise it never sees the end of a pipe.
	Stdin, Stdout, Stderr *os.File

	StartTimeout time.Duration // of the executor's command; 0 means a minute
	Timeout      time.Duration // of the process, from its start; then it and its children are killed, and Wait returns ErrTimeout. 0 means none

	// KillWithClient makes the monitor kill the process and its children when the connection of
	// this client ends, for any reason.
	KillWithClient bool
}

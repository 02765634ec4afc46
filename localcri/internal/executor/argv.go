package executor

import (
	"fmt"
	"slices"
	"strconv"
)

// Creation describes how a container is created.
type Creation struct {
	ID string
	// Bundle is the directory that holds config.json.
	Bundle string
	// PIDFile is where the runtime leaves the PID of the container's process.
	PIDFile string
	// ConsoleSocket is the unix socket over which the runtime sends the master
	// of the terminal; "" without a terminal.
	ConsoleSocket string
	// Log is the file that the runtime writes its errors to, which [LastError]
	// reads. The runtime's own stderr is the container's.
	Log string
}

// Create returns the command that creates a container, absolute path first. Its
// standard streams are those of the container.
func (e *Executor) Create(c Creation) []string {
	argv := append(e.base(c.Log), "create", "--bundle", c.Bundle, "--pid-file", c.PIDFile)
	if c.ConsoleSocket != "" {
		argv = append(argv, "--console-socket", c.ConsoleSocket)
	}
	return append(argv, c.ID)
}

// Start returns the command that starts a container that was created.
func (e *Executor) Start(id, log string) []string { return append(e.base(log), "start", id) }

// Execution describes how a process is run in a container.
type Execution struct {
	ID string
	// Process is a file with the process in JSON, as the process of config.json
	// is. It has the terminal as well.
	Process                string
	PIDFile, ConsoleSocket string // as in Creation
	Log                    string
}

// Exec returns the command that runs a process in a container, and ends when
// that has begun.
func (e *Executor) Exec(x Execution) []string {
	argv := append(e.base(x.Log), "exec", "--detach", "--process", x.Process, "--pid-file", x.PIDFile)
	if x.ConsoleSocket != "" {
		argv = append(argv, "--console-socket", x.ConsoleSocket)
	}
	return append(argv, x.ID)
}

func (e *Executor) kill(id string, signal int, all bool) []string {
	argv := append(e.base(""), "kill")
	if all {
		argv = append(argv, "--all")
	}
	return append(argv, id, strconv.Itoa(signal))
}

func (e *Executor) update(id string) []string {
	return append(e.base(""), "update", "--resources", "-", id)
}

func (e *Executor) delete(id string, force bool) []string {
	argv := append(e.base(""), "delete")
	if force {
		argv = append(argv, "--force")
	}
	return append(argv, id)
}

func (e *Executor) state(id string) []string { return append(e.base(""), "state", id) }

// base are the executable and its global options. Without a file, the runtime
// writes its errors to stderr.
func (e *Executor) base(log string) []string {
	argv := append([]string{e.cfg.Path}, e.cfg.Args...)
	argv = append(argv, "--root", e.cfg.StateDir, "--log-format", "json")
	if log != "" {
		argv = append(argv, "--log", log)
	}
	return slices.Clip(argv)
}

// maxID is the longest ID; ours are 64 hexadecimal digits.
const maxID = 128

// checkID refuses an ID that an OCI runtime could take for an option or for a path.
func checkID(id string) error {
	ok := id != "" && len(id) <= maxID
	for _, c := range []byte(id) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_')
	}
	if !ok {
		return fmt.Errorf("container ID %.130q: must be 1 to %d letters, digits and underscores", id, maxID)
	}
	return nil
}

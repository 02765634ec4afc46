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
	// PIDFile is the path at which the runtime writes the PID of the container's process.
	PIDFile string
	// ConsoleSocket is the path of the unix socket over which the runtime sends the master of the
	// terminal. If it is "", the container has no terminal.
	ConsoleSocket string
	// Log is the path of the file to which the runtime writes its errors, for [LastError]. It
	// cannot write them to stderr, since its stderr becomes the container's.
	Log string
}

// Create returns the command that creates a container, with the absolute path of the runtime
// first. Its standard streams become those of the container.
func (e *Executor) Create(c Creation) []string {
	argv := append(e.base(c.Log), "create", "--bundle", c.Bundle, "--pid-file", c.PIDFile)
	if c.ConsoleSocket != "" {
		argv = append(argv, "--console-socket", c.ConsoleSocket)
	}
	return append(argv, c.ID)
}

// Start returns the command that starts a created container.
func (e *Executor) Start(id, log string) []string { return append(e.base(log), "start", id) }

// Execution describes how a process is started in a container.
type Execution struct {
	ID string
	// Process is the path of a JSON file in the format of "process" in config.json. It also says
	// whether the process has a terminal.
	Process                string
	PIDFile, ConsoleSocket string // as in Creation
	Log                    string
}

// Exec returns the command that starts a process in a container, and exits once the process runs.
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

// base returns the executable and its global options. If log is "", the runtime writes its errors
// to stderr.
func (e *Executor) base(log string) []string {
	argv := append([]string{e.cfg.Path}, e.cfg.Args...)
	argv = append(argv, "--root", e.cfg.StateDir, "--log-format", "json")
	if log != "" {
		argv = append(argv, "--log", log)
	}
	return slices.Clip(argv)
}

// maxID is the length of the longest allowed ID; the IDs of this program have 64 hexadecimal
// digits.
const maxID = 128

// checkID rejects an ID that an OCI runtime could mistake for an option or a path.
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

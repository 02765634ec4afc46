package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/nodewright/nodewright/internal/detached"
)

// Kill sends a signal to the container's first process, or to all its processes. It returns
// [ErrNotRunning] if the first process has ended, and [ErrNotExist] if there is no such
// container. If ctx ends, Kill returns, but the command continues until its own timeout.
func (e *Executor) Kill(ctx context.Context, id string, signal int, all bool) error {
	if signal < 1 || signal > 64 { // _NSIG of asm-generic/signal.h
		return fmt.Errorf("signal %d: must be from 1 to 64", signal)
	}
	return e.change(ctx, "kill", id, e.kill(id, signal, all), nil, func(err error) error {
		if s, stateErr := e.ask(id); stateErr == nil && s.Status == Stopped {
			return fmt.Errorf("%w: %w", ErrNotRunning, err)
		}
		return err
	})
}

// Update changes those resources of a container that are set in r.
func (e *Executor) Update(ctx context.Context, id string, r *specs.LinuxResources) error {
	stdin, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return e.change(ctx, "update", id, e.update(id), stdin, nil)
}

// Delete removes a container from the runtime, with its cgroup. The container's process must have
// ended; if force is true, Delete kills it first. It is not an error if the container does not
// exist.
func (e *Executor) Delete(ctx context.Context, id string, force bool) error {
	err := e.change(ctx, "delete", id, e.delete(id, force), nil, nil)
	if errors.Is(err, ErrNotExist) {
		return nil
	}
	return err
}

// change runs a command when the earlier commands for the same container have ended. If the
// command fails, cause may replace its error by a more specific one. cause may be nil.
func (e *Executor) change(ctx context.Context, verb, id string, argv []string, stdin []byte, cause func(error) error) error {
	if err := checkID(id); err != nil {
		return err
	}
	_, err := detached.Next(ctx, &e.queue, id, func() (struct{}, error) {
		_, err := e.run(verb, id, argv, stdin)
		return struct{}{}, e.explain(id, err, cause)
	})
	return err
}

// explain returns ErrNotExist if a command failed because the container does not exist. Runtimes
// have different messages for this, but all have a directory for each container. For any other
// failure, it returns the result of cause.
func (e *Executor) explain(id string, err error, cause func(error) error) error {
	var failed *Error
	if err == nil || !errors.As(err, &failed) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if _, statErr := os.Lstat(filepath.Join(e.cfg.StateDir, id)); errors.Is(statErr, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrNotExist, err)
	}
	if cause != nil {
		return cause(err)
	}
	return err
}

// Status is a container status as reported by an OCI runtime.
type Status string

// The statuses of the OCI runtime specification, and "paused" of runc and crun.
const (
	Creating Status = "creating"
	Created  Status = "created"
	Running  Status = "running"
	Stopped  Status = "stopped"
	Paused   Status = "paused"
)

// State is the state of a container as reported by an OCI runtime.
type State struct {
	ID     string    `json:"id"`
	Status Status    `json:"status"`
	PID    int       `json:"pid"` // 0 without a process
	Bundle string    `json:"bundle"`
	Since  time.Time `json:"created"` // when the container was created
}

// State asks the runtime for the state of a container. If the runtime does not know the
// container, the error is [ErrNotExist]. Concurrent calls for the same container share one
// answer.
func (e *Executor) State(ctx context.Context, id string) (State, error) {
	if err := checkID(id); err != nil {
		return State{}, err
	}
	out, err := e.group.Do(ctx, id, func() ([]byte, error) {
		out, err := e.run("state", id, e.state(id), nil)
		return out, e.explain(id, err, nil)
	})
	if err != nil {
		return State{}, err
	}
	return parseState(id, out)
}

// ask runs the state command.
func (e *Executor) ask(id string) (State, error) {
	out, err := e.run("state", id, e.state(id), nil)
	if err != nil {
		return State{}, err
	}
	return parseState(id, out)
}

func parseState(id string, out []byte) (State, error) {
	var s State
	if err := json.Unmarshal(out, &s); err != nil {
		return State{}, fmt.Errorf("parse state of container %s: %w", id, err)
	}
	if s.ID != id || s.PID < 0 {
		return State{}, fmt.Errorf("state of container %s has ID %.80q and PID %d", id, s.ID, s.PID)
	}
	return s, nil
}

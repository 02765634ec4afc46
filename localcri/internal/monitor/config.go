//go:build linux

package monitor

import (
	"errors"

	"go.uber.org/zap"
)

// Config configures where monitors are and how they are started.
type Config struct {
	// Program is the absolute path of the monitor program. Running monitors continue with the
	// program that they were started from.
	Program string

	// StateDir is the absolute path of a directory that only root can use, on a file system that
	// does not survive a reboot. Monitors have the directories mon/<sandbox> below it.
	StateDir string

	// Place moves a monitor to its cgroup, which should be neither the caller's nor the pod's.
	// It is called each time a monitor is started or connected to, so the monitor may be in that
	// cgroup already. If Place is nil the monitor stays in the cgroup of its starter.
	Place func(pid int) error

	// Log gets errors for which no caller waits. If it is nil nothing is logged.
	Log *zap.Logger
}

var (
	// ErrGone says that no monitor runs for this sandbox.
	ErrGone = errors.New("monitor is gone")

	// ErrUnknown says that the monitor has no such container or process.
	ErrUnknown = errors.New("unknown to the monitor")

	// ErrExists says that a container with this ID was started or adopted before.
	ErrExists = errors.New("container was started before")

	// ErrNotRunning says that the container has ended, or has not started yet.
	ErrNotRunning = errors.New("container is not running")

	// ErrRunning says that containers still run.
	ErrRunning = errors.New("containers are running")

	// ErrCut says that the monitor disconnected an attached client, because it did not
	// read for too long.
	ErrCut = errors.New("client did not read the output of the container")

	// ErrTimeout says that a process was killed because its timeout had passed.
	ErrTimeout = errors.New("time is over")

	// ErrBusy says that a limit of the monitor is reached, or that the disk of a container's log
	// accepts no data.
	ErrBusy = errors.New("monitor is busy")

	// ErrUnsupported says that the running monitor is too old for the call.
	ErrUnsupported = errors.New("not supported by the running monitor")
)

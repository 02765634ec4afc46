package cgroups

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/kernel"
)

// The errors of this package. Match them with errors.Is.
var (
	// ErrNotExist means that there is no such cgroup.
	ErrNotExist = errors.New("cgroup does not exist")
	// ErrInUse means that a memory limit was refused because the memory usage is not below it, or
	// because the usage is not known.
	ErrInUse = errors.New("memory in use")
	// ErrNoAnswer means that a call of the kernel or systemd did not return in
	// time. The call continues; until it returns, calls for the same file fail at
	// once.
	ErrNoAnswer = kernel.ErrNoAnswer
	// ErrUnsupported means that the machine or the configuration lacks the feature.
	ErrUnsupported = errors.New("not supported by this machine")
)

// ControllerError is a required controller that is missing. Several may be joined
// in one error: errors.As finds the first.
type ControllerError struct {
	Controller string
	Path       string // path of the cgroup; "" for the whole machine
}

func (e *ControllerError) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("cgroup controller %s is missing: the kernel lacks it, or it is not mounted", e.Controller)
	}
	return fmt.Sprintf("cgroup controller %s is missing in %s", e.Controller, e.Path)
}

// StragglersError is a cgroup that was not removed because it still has processes.
// Destroy may be called again.
type StragglersError struct {
	UID types.UID
	// Path is below the mount points.
	Path string
	Pids []int // processes that remained
	Err  error // why the last attempt failed
}

func (e *StragglersError) Error() string {
	return fmt.Sprintf("cgroup %s: processes %v remain: %v", e.Path, e.Pids, e.Err)
}

// Unwrap gives access to the cause, such as ErrNoAnswer.
func (e *StragglersError) Unwrap() error { return e.Err }

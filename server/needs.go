package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// ErrNotFound is wrapped by errors about missing objects. The server then answers with
// status 404.
var ErrNotFound = errors.New("not found")

// Pods returns the desired pods, each with its last known status. It does not call the runtime.
// The pods are shared and not modified.
type Pods interface {
	Pods() []*v1.Pod
}

// Running returns the runtime's pods, with minimal specs. They include unwanted pods that are
// being terminated.
type Running interface {
	RunningPods(ctx context.Context) ([]*v1.Pod, error)
}

// Instances finds a pod's instances in the runtime. Methods may call the runtime, and must return
// when ctx ends.
type Instances interface {
	// ContainerID returns the ID of a pod's running container. The error is ErrNotFound if none
	// is running.
	ContainerID(ctx context.Context, pod types.UID, container string) (string, error)
	// SandboxID returns the ID of a pod's running sandbox.
	SandboxID(ctx context.Context, pod types.UID) (string, error)
}

// Runtime is the part of a CRI runtime that this package uses; *cri.Client implements it. The
// first three methods return a URL of the runtime, to which the stream is forwarded.
type Runtime interface {
	Exec(ctx context.Context, r *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error)
	Attach(ctx context.Context, r *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error)
	PortForward(ctx context.Context, r *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error)
	// ExecSync runs a command to its end. If timeout is 0, the command may run until ctx ends. An
	// exit code other than 0 is an error, returned together with the output.
	ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, err error)
}

// Checkpointer writes a container's memory and files into a file; *cri.Client
// implements it. The call may take minutes.
type Checkpointer interface {
	CheckpointContainer(ctx context.Context, r *runtimeapi.CheckpointContainerRequest) error
}

// Logs finds the log files of containers.
type Logs interface {
	// LogFile returns the path of a container's log. open reports that the container has not
	// ended, so that more may be written. id is the runtime's own ID, without a prefix such as
	// "containerd://". The error is ErrNotFound if there is no such container.
	LogFile(ctx context.Context, id string) (path string, open bool, err error)
}

// Stats returns the usage of the node and its pods. The result is shared and not modified. If
// cpuAndMemoryOnly is true, the values are current; otherwise they may be some seconds old.
type Stats interface {
	Summary(ctx context.Context, cpuAndMemoryOnly bool) (*statsapi.Summary, error)
}

// Check is one health check of the node. The function Check must return when the request's
// context ends. It may be called concurrently.
type Check struct {
	Name  string
	Check func(*http.Request) error
}

// LogLevel is the verbosity of the program's log, at /debug/flags/v. Levels are klog's: a larger
// number logs more.
type LogLevel interface {
	LogLevel() int
	SetLogLevel(v int) error
}

// SyncLoop returns the health check "syncloop". The function last returns the time at which the
// agent's main loop began its last iteration. The check fails if that is longer ago than the
// larger of 5 minutes and twice the period. It passes before the first iteration, when last
// returns the zero time. last may be called concurrently.
func SyncLoop(last func() time.Time, period time.Duration) Check {
	limit := max(5*time.Minute, 2*period) // the kubelet's
	return Check{Name: "syncloop", Check: func(*http.Request) error {
		// A slow start must not cause restarts of the agent.
		if at := last(); !at.IsZero() && time.Since(at) > limit {
			return errors.New("sync Loop took longer than expected")
		}
		return nil
	}}
}

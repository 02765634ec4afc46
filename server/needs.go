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

// ErrNotFound is wrapped by errors about missing objects; the answer is 404.
var ErrNotFound = errors.New("not found")

// Pods lists the desired pods, each with its last known status. It does not call
// the runtime. The pods are shared and never changed.
type Pods interface {
	Pods() []*v1.Pod
}

// Running lists the runtime's pods, with minimal specs. It includes unwanted pods
// that are being terminated.
type Running interface {
	RunningPods(ctx context.Context) ([]*v1.Pod, error)
}

// Instances finds a pod's instances in the runtime. The methods may call the
// runtime, and end with ctx.
type Instances interface {
	// ContainerID returns the id of a pod's running container; the error is
	// ErrNotFound if none runs.
	ContainerID(ctx context.Context, pod types.UID, container string) (string, error)
	// SandboxID returns the id of a pod's running sandbox.
	SandboxID(ctx context.Context, pod types.UID) (string, error)
}

// Runtime is the used part of a CRI runtime; *cri.Client implements it. The first
// three return a URL of the runtime, to which the stream is forwarded.
type Runtime interface {
	Exec(ctx context.Context, r *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error)
	Attach(ctx context.Context, r *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error)
	PortForward(ctx context.Context, r *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error)
	// ExecSync runs a command to its end; timeout 0 means as long as ctx
	// allows. An exit code other than 0 is an error beside the output.
	ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, err error)
}

// Checkpointer writes a container's memory and files into a file; *cri.Client
// implements it. The call may take minutes.
type Checkpointer interface {
	CheckpointContainer(ctx context.Context, r *runtimeapi.CheckpointContainerRequest) error
}

// Logs knows where containers log to.
type Logs interface {
	// LogFile returns the path of a container's log, and whether more may
	// come: the container has not ended. The id is a runtime's own, without
	// its "containerd://". The error is ErrNotFound if there is none.
	LogFile(ctx context.Context, id string) (path string, open bool, err error)
}

// Stats returns the usage of the node and its pods. The result is shared: it is not
// changed. With cpuAndMemoryOnly the values are current; otherwise they may be some
// seconds old.
type Stats interface {
	Summary(ctx context.Context, cpuAndMemoryOnly bool) (*statsapi.Summary, error)
}

// Check is one part of the node's health. Check must end with the request's
// context. It is called from any goroutine, also concurrently.
type Check struct {
	Name  string
	Check func(*http.Request) error
}

// LogLevel is the verbosity of the program's log, at /debug/flags/v. Levels are
// those of klog: a larger number logs more.
type LogLevel interface {
	LogLevel() int
	SetLogLevel(v int) error
}

// SyncLoop is the check "syncloop": it fails when last, the time at which the loop
// was last entered, is older than 5 minutes and than twice its period. It passes
// before the first entry (the zero time). last is called from any goroutine.
func SyncLoop(last func() time.Time, period time.Duration) Check {
	limit := max(5*time.Minute, 2*period) // the kubelet's
	return Check{Name: "syncloop", Check: func(*http.Request) error {
		// A start that takes long must not have the agent restarted again and again.
		if at := last(); !at.IsZero() && time.Since(at) > limit {
			return errors.New("sync Loop took longer than expected")
		}
		return nil
	}}
}

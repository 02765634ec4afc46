package probe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/probe/check"
)

// Execer runs a command in a container. The error of a command that exited
// with another code than 0 has a method ExitCode() int, as that of os/exec, or
// ExitStatus() int, as that of k8s.io/utils/exec; that of one that exceeded
// timeout is context.DeadlineExceeded or a gRPC status of that code. Of the
// output the first check.MaxOutput bytes are used, and none is kept.
type Execer interface {
	// ExecSync blocks until the command has ended, has exceeded its timeout, or
	// ctx ends.
	ExecSync(ctx context.Context, containerID string, cmd []string, timeout time.Duration) (stdout, stderr []byte, err error)
}

// EventRecorder takes what is worth telling about a pod.
type EventRecorder interface {
	// Event is called from goroutines of checks, without a lock.
	Event(pod *v1.Pod, eventType, reason, message string)
}

// ContainerEvents is what an [EventRecorder] may be beside: it takes the events of
// containers, which else are those of their pods.
type ContainerEvents interface {
	ContainerEvent(pod *v1.Pod, container, eventType, reason, message string)
}

// Store keeps small values beyond the end of the process. Read fails with
// fs.ErrNotExist if there is none. Keys of others are left alone. The methods may
// be called from any goroutine; writes and deletions of one key come one at a
// time. They may be slow: results wait for a write no longer than 100 ms.
type Store interface {
	Read(key string) ([]byte, error)
	Write(key string, value []byte) error
	Delete(key string) error
	Keys() ([]string, error)
}

// GRPC checks a server by gRPC's health protocol, as [github.com/nodewright/nodewright/probe/check/grpchealth.Check] does.
type GRPC func(ctx context.Context, addr, service string) (check.Outcome, string, error)

// Config holds what a Manager needs. The zero value of every field means the
// default named beside it.
type Config struct {
	Exec Execer // exec probes cannot be made
	// Answers asks whoever is behind Exec for anything, and is asked when nothing was
	// heard of a command: if that is answered, in a second, the command hangs, which is
	// a failure. Otherwise the runtime does, and the probe keeps its result. nil: what
	// was said about other commands meanwhile decides.
	Answers  func(ctx context.Context) error
	GRPC     GRPC          // grpc probes cannot be made
	Events   EventRecorder // nobody is told
	Journal  Store         // nothing outlasts the process
	OnChange func(Change)  // nobody is told. Called in order for one container and never while a lock is held; it may call the Manager
	// Published returns the status in which others see a pod, and whether that is known; the
	// pod's own. It is asked of containers that ran before the Manager: while it is not known,
	// a readiness of the journal may be older than what others see, and has to be checked.
	// It is called while a lock is held, and must not call the Manager.
	Published func(pod *v1.Pod) (st *v1.PodStatus, known bool)
	Adjust    func(pod *v1.Pod, c *v1.Container, t Type, timing *check.Timing) // of a probe's timing, such as periods below a second; none

	// Network makes the checks that connect to a pod (HTTP, TCP and gRPC), for pods that
	// no network of this machine leads to; connections are made. It returns when ctx ends.
	Network func(ctx context.Context, p *v1.Probe) (check.Outcome, string, error)

	// Parallel is how many places there are for checks; 256. Pods have them in
	// turn; a pod has a quarter of them at most, those counted that its checks
	// gave to others when they ran longer than a second.
	Parallel     int
	ParallelExec int // places for exec checks, beside the others; 32

	// KeepAlive reuses the connections of HTTP probes.
	KeepAlive bool
	// Graceful ends connections in order, as the kubelet does, and not with a
	// reset. They stay in TIME_WAIT for a minute.
	Graceful bool
	// FastStart makes additional checks of startup and readiness probes 100 ms,
	// 200 ms and so on after the first, up to the period, until one succeeds.
	// Failures of these do not count and are no events.
	FastStart bool

	HostIP    string // of pods in the host's network without an address in their status; 127.0.0.1
	UserAgent string // of HTTP probes; kube-probe/1.37

	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported
}

// withDefaults fills in zero values, so that nothing else has to ask for them.
func (c Config) withDefaults() Config {
	if c.OnChange == nil {
		c.OnChange = func(Change) {}
	}
	if c.Published == nil {
		c.Published = func(pod *v1.Pod) (*v1.PodStatus, bool) { return &pod.Status, true }
	}
	if c.Parallel == 0 {
		c.Parallel = 256
	}
	if c.ParallelExec == 0 {
		c.ParallelExec = 32
	}
	if c.HostIP == "" {
		c.HostIP = "127.0.0.1"
	}
	if c.UserAgent == "" {
		c.UserAgent = "kube-probe/1.37"
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

// validate reports all mistakes at once.
func (c Config) validate() error {
	var errs []error
	if c.Parallel < 0 {
		errs = append(errs, fmt.Errorf("Config.Parallel is %d; want a positive number", c.Parallel))
	}
	if c.ParallelExec < 0 {
		errs = append(errs, fmt.Errorf("Config.ParallelExec is %d; want a positive number", c.ParallelExec))
	}
	return errors.Join(errs...)
}

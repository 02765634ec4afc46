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

// Execer runs a command in a container. The error of a command that exited with
// another code than 0 has a method ExitCode() int, like os/exec's, or ExitStatus()
// int, like that of k8s.io/utils/exec. The error after timeout is
// context.DeadlineExceeded or a gRPC status of that code. Only the first
// check.MaxOutput bytes of the output are used.
type Execer interface {
	// ExecSync blocks until the command has ended, has exceeded its timeout, or ctx
	// ends.
	ExecSync(ctx context.Context, containerID string, cmd []string, timeout time.Duration) (stdout, stderr []byte, err error)
}

// EventRecorder records events of pods.
type EventRecorder interface {
	// Event is called from goroutines of checks, without locks held.
	Event(pod *v1.Pod, eventType, reason, message string)
}

// ContainerEvents is an optional interface of an [EventRecorder] for events of
// containers, which are otherwise events of their pods.
type ContainerEvents interface {
	ContainerEvent(pod *v1.Pod, container, eventType, reason, message string)
}

// Store stores small values durably. Read returns fs.ErrNotExist if there is no value of the key.
// The Manager ignores keys that it did not write. The methods may be called from any goroutine;
// writes and deletions of one key are serialized. They may be slow: results wait for a write at
// most 100 ms.
type Store interface {
	Read(key string) ([]byte, error)
	Write(key string, value []byte) error
	Delete(key string) error
	Keys() ([]string, error)
}

// GRPC checks a server by gRPC's health protocol, as [github.com/nodewright/nodewright/probe/check/grpchealth.Check] does.
type GRPC func(ctx context.Context, addr, service string) (check.Outcome, string, error)

// Config configures a [Manager]. The zero value of every field means the default
// named beside it.
type Config struct {
	Exec Execer // runs the commands of exec probes; if it is nil, they fail
	// Answers makes a cheap call to the runtime. It is called when the runtime did not answer about
	// a command: if it succeeds within a second, the command hangs, which is a failure; otherwise
	// the runtime hangs, and the probe keeps its result. If Answers is nil, the runtime counts as
	// hung unless it answered about another command meanwhile.
	Answers  func(ctx context.Context) error
	GRPC     GRPC          // makes the checks of grpc probes; if it is nil, they fail
	Events   EventRecorder // if nil, no events are recorded
	Journal  Store         // stores the results; if nil, they are not stored
	OnChange func(Change)  // called with each new result, in order for one container, without locks held; it may call the Manager; may be nil
	// Published returns the published status of a pod, and whether it is known. If Published is
	// nil, the pod's own status is used. Published is called for containers that ran before the
	// Manager: if the status is not known, the readiness in the journal may be older than the
	// published one, and the container is checked first. Published is called with a lock held,
	// and must not call the Manager.
	Published func(pod *v1.Pod) (st *v1.PodStatus, known bool)
	Adjust    func(pod *v1.Pod, c *v1.Container, t Type, timing *check.Timing) // changes a probe's timing, for example to a period below a second; may be nil

	// Network makes the checks that connect to a pod (HTTP, TCP and gRPC), for pods that this
	// machine cannot reach by its network. It must return when ctx ends. If Network is nil, the
	// Manager opens the connections.
	Network func(ctx context.Context, p *v1.Probe) (check.Outcome, string, error)

	// Parallel limits the running checks. The default is 256. Pods get slots in turn; a pod can
	// have a quarter of them at most, including checks that gave their slot to others because
	// they ran longer than a second.
	Parallel     int
	ParallelExec int // separate limit of exec checks; the default is 32

	// KeepAlive reuses the connections of HTTP probes.
	KeepAlive bool
	// Graceful closes connections with a FIN, like the kubelet, and not with a reset. They stay
	// in TIME_WAIT for a minute.
	Graceful bool
	// FastStart makes additional checks of startup and readiness probes 100 ms, 200
	// ms and so on after the first, up to the period, until one succeeds. Their
	// failures do not count and cause no events.
	FastStart bool

	HostIP    string // address of host-network pods without an address in their status; the default is 127.0.0.1
	UserAgent string // user agent of HTTP probes; kube-probe/1.37

	Log     *zap.Logger           // if nil, nothing is logged
	Metrics prometheus.Registerer // if nil, metrics are not exported
}

// withDefaults sets the defaults.
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

package podruntime

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/internal/callerror"
	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/podspec"
)

// Runtime is what this package asks of a container runtime; *cri.Client has
// it. Stopping and removing what is not there must fail with the gRPC code
// NotFound, or succeed.
type Runtime interface {
	SandboxRuntime
	ContainerRuntime
}

// SandboxRuntime is the part of a Runtime about sandboxes.
type SandboxRuntime interface {
	// RunPodSandbox makes and starts a sandbox and returns its ID. It returns
	// when the sandbox has its network, which can take as long as CNI plugins do.
	// handler is that of the pod's runtime class; "" is the runtime's default.
	RunPodSandbox(ctx context.Context, conf *runtimeapi.PodSandboxConfig, handler string) (string, error)
	// PodSandboxStatus is asked for the addresses of a new sandbox, and about a
	// sandbox that is not in a list that it should be in.
	PodSandboxStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error)
	// StopPodSandbox kills what still runs in a sandbox, without any grace, and
	// gives its addresses back. The CRI has it succeed when it is repeated.
	StopPodSandbox(ctx context.Context, id string) error
	// RemovePodSandbox removes a sandbox together with the containers in it.
	RemovePodSandbox(ctx context.Context, id string) error
}

// ContainerRuntime is the part of a Runtime about containers.
type ContainerRuntime interface {
	// CreateContainer makes a container without starting it, and returns its ID.
	// sandboxConf repeats the configuration of the container's sandbox, as the
	// CRI asks for.
	CreateContainer(ctx context.Context, sandbox string, conf *runtimeapi.ContainerConfig, sandboxConf *runtimeapi.PodSandboxConfig) (string, error)
	StartContainer(ctx context.Context, id string) error
	// StopContainer sends the container's stop signal, kills what is left after
	// timeout seconds, and returns once the container has ended.
	StopContainer(ctx context.Context, id string, timeout int64) error
	// RemoveContainer removes a container that has ended, but not its logs, which
	// are the agent's.
	RemoveContainer(ctx context.Context, id string) error
	// ContainerStatus is asked about a container that is not in a list that
	// it should be in.
	ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error)
	// ExecSync runs the command of a lifecycle hook in a container and waits for
	// its end; a timeout of 0 is none.
	ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, err error)
}

// ImageRequest asks for a container's image.
type ImageRequest struct {
	// Pod is shared: read-only.
	Pod *v1.Pod
	// Container is whose image it is, "" for that of a volume.
	Container string
	// Image is the reference as the spec writes it: it may lack a tag.
	Image  string
	Policy v1.PullPolicy
	// RuntimeHandler is that of the pod's runtime class, or "".
	RuntimeHandler string
	// Sandbox is the configuration of the sandbox that the image is for: some
	// runtimes choose by it where images go (CRI, PullImageRequest).
	Sandbox *runtimeapi.PodSandboxConfig
	// Secrets are the pod's pull secrets that exist, in the order of its spec.
	Secrets []*v1.Secret
}

// Images makes sure that an image is on the node. Its errors may bear a
// reason (Reason() string) and a time (RetryAt() time.Time).
type Images interface {
	// Ensure blocks until the image is there or cannot be had, or ctx ends. It is
	// called from several goroutines, also for one pod.
	Ensure(ctx context.Context, r ImageRequest) (podspec.ImageFacts, error)
}

// Events takes what is worth telling about a pod.
type Events interface {
	// Event is called from any goroutine, several at a time for one pod.
	Event(pod *v1.Pod, eventType, reason, message string)
}

// ContainerEvents is what [Events] may be beside: it takes the events of containers,
// which else are those of their pods.
type ContainerEvents interface {
	ContainerEvent(pod *v1.Pod, container, eventType, reason, message string)
}

// SubPaths gives containers parts of volumes.
type SubPaths interface {
	// Bind makes a part of a volume ready and returns the path on the node that
	// the container mounts. What it made before it uses again.
	Bind(ctx context.Context, podDir, container string, s podspec.SubPath) (hostPath string, err error)
}

// Lifecycle is called around what the runtime is asked to do with containers, in
// the goroutine of the call.
type Lifecycle interface {
	// Creating is called right before a container is created. It may change
	// conf, and may block until ctx ends; an error keeps the container from being
	// created this time. created is called with the container's ID, or with the
	// error of its creation, unless it is nil.
	Creating(ctx context.Context, pod *v1.Pod, container string, conf *runtimeapi.ContainerConfig) (created func(id string, err error), err error)
	// Started is called when a container has been started, Removed when one
	// has been removed. Neither may block.
	Started(pod *v1.Pod, container, id string)
	Removed(id string)
}

// nobody is the Lifecycle of a Manager that was given none.
type nobody struct{}

func (nobody) Creating(context.Context, *v1.Pod, string, *runtimeapi.ContainerConfig) (func(string, error), error) {
	return nil, nil
}
func (nobody) Started(*v1.Pod, string, string) {}
func (nobody) Removed(string)                  {}

// Config holds what a Manager needs. Runtime, Images and PodLogsDir are
// required; the zero value of every other field means the default named
// beside it.
type Config struct {
	// Runtime and Images are called from any goroutine.
	Runtime Runtime
	Images  Images
	// PodLogsDir is the absolute path of the directory of all pods' logs. Nothing
	// outside of it is taken for a log, whatever path a runtime reports.
	PodLogsDir string
	// ContainerLogsDir gets a link to each container's log, as log collectors
	// look for them; none are made.
	ContainerLogsDir string
	Events           Events // nobody is told
	// Lifecycle is called around the creation, start and removal of containers;
	// nobody.
	Lifecycle Lifecycle
	// Reap kills the processes of a container that the runtime has lost
	// sight of, and says how many there were; nobody does.
	Reap func(containerID string) (killed int, err error)
	// SubPaths mounts parts of volumes safely for containers to mount; without
	// it the runtime mounts them by their paths, which a pod that changes its
	// volume meanwhile can have lead elsewhere.
	SubPaths SubPaths
	// Resizer changes the resources of running containers; nobody does, they
	// stay as they were made.
	Resizer Resizer
	// Cgroups are resized with the containers; pods have none.
	Cgroups PodCgroups

	// KeepDead is how many dead instances of each container a sync leaves; 1.
	// Below 0 it leaves all, for somebody else to remove.
	KeepDead int

	// Backoff delays restarts; nil is the kubelet's, which these two tune.
	Backoff         Backoff
	CrashBackoff    time.Duration // before the second restart of a container; 10s
	MaxCrashBackoff time.Duration // its limit; 5m
	// HTTPHook makes the requests of lifecycle hooks, for pods that no network of this
	// machine leads to; connections are made. It returns when ctx ends.
	HTTPHook func(ctx context.Context, g *v1.HTTPGetAction) error
	// Memory remembers crash loops over restarts of the agent; without it
	// they are worked out from the restart counts.
	Memory Memory

	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported
}

// The kubelet's crash-loop back-off.
const (
	defaultCrashBackoff    = 10 * time.Second
	defaultMaxCrashBackoff = 5 * time.Minute
)

// Manager brings pods into the state that their specs ask for.
type Manager struct {
	// cfg has its defaults filled in, and does not change after New.
	cfg Config
	// disk makes all calls into file systems, which may never return; see onDisk.
	disk detached.Queue
	// rt is cfg.Runtime.
	rt  Runtime
	met *metrics
	// crash delays restarts of containers that ended, tries those of calls that
	// failed.
	crash *crashLoops
	tries *tries
	// stopping are the pods whose end has failed so far.
	stopping stopping
	// promises are what the runtime is to show.
	promises *promises
	// applied is empty without a Resizer.
	applied applied

	// mu guards fails: by pod and container name, why the last start failed.
	mu    sync.Mutex
	fails map[types.UID]map[string]StartError
}

// StartError is why a container did not start.
// Reason is the one of the container's waiting state, Message its text; both
// are shown to users as they are.
type StartError struct{ Reason, Message string }

// New checks cfg and returns a Manager. It owns no goroutine beyond its calls.
func New(cfg Config) (*Manager, error) {
	if cfg.Lifecycle == nil {
		cfg.Lifecycle = nobody{}
	}
	if cfg.MaxCrashBackoff == 0 {
		cfg.MaxCrashBackoff = defaultMaxCrashBackoff
	}
	// A first delay above the limit would be a mistake that nobody made who set
	// the limit alone; the kubelet lowers its first delay as well.
	if cfg.CrashBackoff == 0 {
		cfg.CrashBackoff = min(defaultCrashBackoff, cfg.MaxCrashBackoff)
	}
	if cfg.KeepDead == 0 {
		cfg.KeepDead = 1 // its state and its logs are the pod's
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	var errs []error
	// All mistakes are reported at once: a configuration is mended in one go.
	if cfg.Runtime == nil {
		errs = append(errs, errors.New("Config.Runtime is required"))
	}
	if cfg.Images == nil {
		errs = append(errs, errors.New("Config.Images is required"))
	}
	if !filepath.IsAbs(cfg.PodLogsDir) {
		errs = append(errs, fmt.Errorf("Config.PodLogsDir is %q; an absolute path is required", cfg.PodLogsDir))
	}
	if cfg.ContainerLogsDir != "" && !filepath.IsAbs(cfg.ContainerLogsDir) {
		errs = append(errs, fmt.Errorf("Config.ContainerLogsDir is %q; an absolute path, or none, is required", cfg.ContainerLogsDir))
	}
	if cfg.CrashBackoff < 0 || cfg.MaxCrashBackoff < cfg.CrashBackoff {
		errs = append(errs, fmt.Errorf("Config.CrashBackoff %v and MaxCrashBackoff %v: want positive durations, the second not below the first",
			cfg.CrashBackoff, cfg.MaxCrashBackoff))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("podruntime: %w", err)
	}
	cfg.PodLogsDir = filepath.Clean(cfg.PodLogsDir)
	// The registration comes last: a refused configuration leaves nothing
	// registered.
	met, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("podruntime: %w", err)
	}
	return &Manager{
		cfg: cfg, rt: cfg.Runtime, met: met, disk: detached.Queue{Limit: maxHung},
		crash: newCrashLoops(&cfg), tries: newTries(), promises: newPromises(),
		applied: applied{pods: map[types.UID]map[appliedKey]*runtimeapi.LinuxContainerResources{}},
		fails:   map[types.UID]map[string]StartError{}, stopping: stopping{pods: map[types.UID]time.Time{}},
	}, nil
}

// StartErrors reports, by container name, of the starts that failed last. The
// map is the caller's.
func (m *Manager) StartErrors(uid types.UID) map[string]StartError {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(map[string]StartError, len(m.fails[uid]))
	for name, e := range m.fails[uid] {
		out[name] = e
	}
	return out
}

// noteStart remembers how a container's last start ended, for StartErrors. A
// nil err forgets the failure, so that the container is no longer shown as
// waiting.
func (m *Manager) noteStart(uid types.UID, name string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		delete(m.fails[uid], name)
		return
	}
	if m.fails[uid] == nil {
		m.fails[uid] = map[string]StartError{}
	}
	m.fails[uid][name] = StartError{Reason: reasonOf(err), Message: callerror.Shown(err)}
}

// Forget drops what is remembered of a pod that is gone.
// The pod must be at rest: a sync under way would remember it again. Each
// record has a lock of its own, and none is held while another is taken.
func (m *Manager) Forget(uid types.UID) {
	m.mu.Lock()
	delete(m.fails, uid)
	m.mu.Unlock()
	m.crash.forget(uid)
	m.tries.forget(uid)
	m.stopping.forget(uid)
	m.promises.forget(uid)
	m.applied.forget(uid)
}

// event reports an event of a pod, if anybody listens. pod is nil where the
// spec is unknown: such an event would have no object to be about.
func (m *Manager) event(pod *v1.Pod, eventType, reason, format string, args ...any) {
	if m.cfg.Events != nil && pod != nil {
		m.cfg.Events.Event(pod, eventType, reason, fmt.Sprintf(format, args...))
	}
}

// containerEvent is an event of a container.
func (m *Manager) containerEvent(pod *v1.Pod, container, eventType, reason, format string, args ...any) {
	if c, ok := m.cfg.Events.(ContainerEvents); ok && pod != nil {
		c.ContainerEvent(pod, container, eventType, reason, fmt.Sprintf(format, args...))
		return
	}
	m.event(pod, eventType, reason, format, args...)
}

// Request asks for one pod to be synced.
type Request struct {
	// Spec is the compiler's input; its PodIPs may be empty.
	Spec podspec.Input
	// Observed is what the runtime shows; nil is nothing. A sync does not change
	// it.
	Observed *observed.Pod
	// Liveness and Startup tell the results of probes by container ID; nil
	// means that there are none.
	Liveness, Startup func(containerID string) ProbeResult
	// Unsure is that of [PlanInput].
	Unsure bool
}

// ActionResult is one thing that was done, or not.
type ActionResult struct {
	Action string // KillContainer, CreatePodSandbox, StartContainer, ...
	Target string // the container's or the pod's name
	// Err is nil for what was done. One that matches errUndone left the runtime
	// as it was.
	Err error
}

// Result is what a sync did.
type Result struct {
	// Actions are in the order in which they ended. Containers that start side by
	// side may end in any order.
	Actions []ActionResult
	// Resizes reports that there were running containers to be resized.
	Resizes bool
}

// Err joins the errors of all actions.
func (r *Result) Err() error {
	var errs []error
	for _, a := range r.Actions {
		if a.Err != nil {
			errs = append(errs, a.Err)
		}
	}
	return errors.Join(errs...)
}

// Changed reports whether anything in the runtime was changed, or may have been.
// A failed call counts as a change: nobody knows how far the runtime came with
// it.
func (r *Result) Changed() bool {
	for _, a := range r.Actions {
		if !errors.Is(a.Err, errUndone) {
			return true
		}
	}
	return false
}

// add notes an action. While containers start side by side, the caller holds
// syncing.mu.
func (r *Result) add(action, target string, err error) {
	r.Actions = append(r.Actions, ActionResult{Action: action, Target: target, Err: err})
}

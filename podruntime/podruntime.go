package podruntime

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podspec"
)

// Runtime has the calls of a container runtime that this package makes. *cri.Client implements
// it. For an object that does not exist, stop and remove must succeed or fail with the gRPC
// code NotFound.
type Runtime interface {
	SandboxRuntime
	ContainerRuntime
}

// SandboxRuntime has the calls of a [Runtime] for sandboxes.
type SandboxRuntime interface {
	// RunPodSandbox creates and starts a sandbox and returns its ID. It waits for the sandbox's
	// network, and so for CNI plugins. handler is the handler of the pod's runtime class, or ""
	// for the runtime's default handler.
	RunPodSandbox(ctx context.Context, conf *runtimeapi.PodSandboxConfig, handler string) (string, error)
	// PodSandboxStatus is called for the addresses of a new sandbox, and for a
	// sandbox that is missing from the runtime's list.
	PodSandboxStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error)
	// StopPodSandbox kills the processes in a sandbox without a grace period, and
	// releases its addresses. It is idempotent, as the CRI requires.
	StopPodSandbox(ctx context.Context, id string) error
	// RemovePodSandbox removes a sandbox together with the containers in it.
	RemovePodSandbox(ctx context.Context, id string) error
}

// ContainerRuntime has the calls of a [Runtime] for containers.
type ContainerRuntime interface {
	// CreateContainer creates a container without starting it, and returns its ID.
	// sandboxConf is the configuration of its sandbox, as the CRI requires.
	CreateContainer(ctx context.Context, sandbox string, conf *runtimeapi.ContainerConfig, sandboxConf *runtimeapi.PodSandboxConfig) (string, error)
	StartContainer(ctx context.Context, id string) error
	// StopContainer sends the container's stop signal, kills the container after
	// timeout seconds, and returns when it has exited.
	StopContainer(ctx context.Context, id string, timeout int64) error
	// RemoveContainer removes an exited container. Its logs stay: the agent removes
	// them.
	RemoveContainer(ctx context.Context, id string) error
	// ContainerStatus is called for a container that is missing from the runtime's
	// list.
	ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error)
	// ExecSync runs the command of a lifecycle hook in a container and waits until it
	// exits. A timeout of 0 means no timeout.
	ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, err error)
}

// ImageRequest describes an image that a container or an image volume needs.
type ImageRequest struct {
	// Pod is shared: read-only.
	Pod *v1.Pod
	// Container is the name of the container, or "" for an image volume.
	Container string
	// Image is the reference from the spec, possibly without a tag.
	Image  string
	Policy v1.PullPolicy
	// RuntimeHandler is the handler of the pod's runtime class, or "".
	RuntimeHandler string
	// Sandbox is the configuration of the pod's sandbox: some runtimes choose by it
	// where to store the image (CRI, PullImageRequest).
	Sandbox *runtimeapi.PodSandboxConfig
	// Secrets lists the existing pull secrets of the pod, in the order of its spec.
	Secrets []*v1.Secret
}

// Images provides images on the node. Its errors may have a reason (a method Reason()
// string) and a time for the next try (a method RetryAt() time.Time).
type Images interface {
	// Ensure returns when the image is on the node. It returns an error if the image cannot be
	// provided, or ctx ends. It may be called concurrently, also for one pod.
	Ensure(ctx context.Context, r ImageRequest) (podspec.ImageFacts, error)
}

// Events records Kubernetes events of pods.
type Events interface {
	// Event may be called concurrently, also for one pod.
	Event(pod *v1.Pod, eventType, reason, message string)
}

// ContainerEvents is an optional interface of [Events] for the events of containers. Without it,
// events of containers are recorded as events of their pods.
type ContainerEvents interface {
	ContainerEvent(pod *v1.Pod, container, eventType, reason, message string)
}

// SubPaths provides the subPaths of volumes for containers to mount.
type SubPaths interface {
	// Bind prepares a subPath and returns the path on the node that the container mounts. If the
	// subPath is prepared already, Bind returns the same path again.
	Bind(ctx context.Context, podDir, container string, s podspec.SubPath) (hostPath string, err error)
}

// Lifecycle has hooks around the runtime's calls for containers. They are called in the
// goroutine of the runtime's call.
type Lifecycle interface {
	// Creating is called before CreateContainer. It may change conf, and may block until ctx
	// ends. If it returns an error, the container is not created in this sync. created, if not
	// nil, is called with the container's ID, or with the error of CreateContainer.
	Creating(ctx context.Context, pod *v1.Pod, container string, conf *runtimeapi.ContainerConfig) (created func(id string, err error), err error)
	// Started is called after a container was started, Removed after one was
	// removed. They must not block.
	Started(pod *v1.Pod, container, id string)
	Removed(id string)
}

// nobody is the Lifecycle of a Manager without Config.Lifecycle: its methods do nothing.
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
	// PodLogsDir is the absolute path of the directory of all pods' logs. A log path
	// that the runtime reports outside of it is ignored.
	PodLogsDir string
	// ContainerLogsDir is the directory of the links to the containers' logs, for log collectors.
	// If it is "", no links are made.
	ContainerLogsDir string
	Events           Events // if nil, no events are recorded
	// Lifecycle is called around the creation, start and removal of containers. If it is nil,
	// nothing is called.
	Lifecycle Lifecycle
	// Reap kills the processes of a container that the runtime no longer knows, and returns how
	// many it killed. It is called if the runtime refuses to remove a container or sandbox. If
	// Reap is nil, nothing is killed.
	Reap func(containerID string) (killed int, err error)
	// SubPaths prepares subPaths so that a container cannot redirect them. If SubPaths is nil,
	// the runtime mounts them by path: a container that replaces a part of the path by a link can
	// then mount other directories of the node.
	SubPaths SubPaths
	// Resizer changes the resources of running containers. If Resizer is nil, containers keep the
	// resources with which they were created.
	Resizer Resizer
	// Cgroups changes the cgroup of a pod together with its containers. If Cgroups is nil, pods
	// have no cgroups.
	Cgroups PodCgroups

	// KeepDead is the number of dead instances of each container that a sync keeps. The default
	// is 1. If it is negative, a sync keeps all, and the caller has to remove them.
	KeepDead int

	// Decide makes the decisions of a sync, for a caller that records them. It is called in the
	// goroutine of the sync and must not block. If Decide is nil, podlife.Decide
	// decides.
	Decide func(podlife.Life, podlife.Knowledge) podlife.Decision

	// Backoff delays restarts. The default is the kubelet's policy, DoublingBackoff{}.
	Backoff Backoff
	// HTTPHook makes the HTTP requests of lifecycle hooks, for pods that the node's network
	// cannot reach. It has to return when ctx ends. If HTTPHook is nil, the Manager connects from
	// the node.
	HTTPHook func(ctx context.Context, g *v1.HTTPGetAction) error
	// Memory stores crash loops over restarts of the agent. If Memory is nil, crash loops are
	// computed from restart counts and exit times.
	Memory Memory

	Log     *zap.Logger           // if nil, nothing is logged
	Metrics prometheus.Registerer // if nil, metrics are not exported
}

// Manager changes pods in the runtime to match their specs.
type Manager struct {
	// cfg has its defaults filled in, and does not change after New.
	cfg Config
	// disk makes all calls into file systems, which may never return; see onDisk.
	disk detached.Queue
	// rt is cfg.Runtime, under a shorter name.
	rt  Runtime
	met *metrics
	// runs has the known attempts of all containers and sandboxes.
	runs *runs
	// unsaved reports that the last write to Config.Memory failed.
	unsaved atomic.Bool
	// dial connects to the servers of hooks. If dial is nil, connections go over the network.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// New checks cfg and returns a Manager. A Manager has goroutines only during its calls.
func New(cfg Config) (*Manager, error) {
	if cfg.Lifecycle == nil {
		cfg.Lifecycle = nobody{}
	}
	if cfg.Backoff == nil {
		cfg.Backoff = DoublingBackoff{}
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

		runs: newRuns(),
	}, nil
}

// Forget drops all records of a pod that is gone. No call for the pod may be under way, since
// such a call could make a new record.
func (m *Manager) Forget(uid types.UID) {
	if m.runs.forget(uid) {
		m.eraseLoops(uid)
	}
}

// event reports an event of a pod to Config.Events. If pod is nil, because its spec is not known,
// event does nothing, since the event would have no object.
func (m *Manager) event(pod *v1.Pod, eventType, reason, format string, args ...any) {
	if m.cfg.Events != nil && pod != nil {
		m.cfg.Events.Event(pod, eventType, reason, fmt.Sprintf(format, args...))
	}
}

// containerEvent reports an event of a container.
func (m *Manager) containerEvent(pod *v1.Pod, container, eventType, reason, format string, args ...any) {
	if c, ok := m.cfg.Events.(ContainerEvents); ok && pod != nil {
		c.ContainerEvent(pod, container, eventType, reason, fmt.Sprintf(format, args...))
		return
	}
	m.event(pod, eventType, reason, format, args...)
}

// causeEvent reports why a container does not start, or why the sandbox does not if container is
// "".
func (m *Manager) causeEvent(pod *v1.Pod, container string, cause podlife.Cause) {
	eventType, reason, message := cause.ContainerEvent(container, podName(pod))
	if container == "" {
		m.event(pod, eventType, reason, "%s", message)
	} else {
		m.containerEvent(pod, container, eventType, reason, "%s", message)
	}
}

// Request is the input of [Manager.Sync].
type Request struct {
	// Spec is the pod with everything its containers are made from. Its PodIPs may
	// be empty.
	Spec podspec.Input
	// Observed is the pod as last seen in the runtime. It is nil if the runtime has nothing of
	// the pod. A sync does not change it.
	Observed *observed.Pod
	// Liveness and Startup return the results of probes by container ID. If a function is nil,
	// the pod has no such probes.
	Liveness, Startup func(containerID string) ProbeResult
	// Unsure has the meaning of [PlanInput.Unsure].
	Unsure bool
}

// ActionResult says what a sync did to a container or to the sandbox, and whether it failed.
type ActionResult struct {
	Action string // KillContainer, CreatePodSandbox, StartContainer, ...
	Target string // the container's or the pod's name
	// Err is nil if the action succeeded.
	Err error
}

// Result lists what a sync did.
type Result struct {
	// Actions lists the actions in the order in which they ended. Starts of
	// containers run in parallel and may end in any order.
	Actions []ActionResult
	// Resizes reports that the sync had running containers to resize.
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
// A failed call of the runtime counts as a change, since it may have had an effect.
func (r *Result) Changed() bool {
	for _, a := range r.Actions {
		if !errors.Is(a.Err, errUndone) {
			return true
		}
	}
	return false
}

// add adds the result of an action. While containers start in parallel, the caller holds
// syncing.mu.
func (r *Result) add(action, target string, err error) {
	r.Actions = append(r.Actions, ActionResult{Action: action, Target: target, Err: err})
}

package localcri

import (
	"context"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Hooks follow sandboxes and containers, and change containers. Package localcri/nri implements
// them with plugins of the Node Resource Interface.
//
// A method is called by the work of one sandbox or container, which waits for the result. The
// runtime holds no lock meanwhile, so a call delays only its own sandbox or container. An
// implementation limits the duration of a call itself; ctx ends when the runtime ends. Arguments
// are copies. A HookChange and its content belong to the runtime.
type Hooks interface {
	// Run works until ctx ends. It is called when the runtime has recovered the sandboxes and
	// containers of an earlier process, or has tried to for 10 s. If it returns an error, it is
	// called again, at first after a second and at last every five minutes.
	Run(ctx context.Context, host HookHost) error
	// Create is called before a container is created, with its compiled configuration. An error
	// means that the container is not created.
	Create(ctx context.Context, p HookPod, c HookContainer) (HookChange, error)
	// Update is called before UpdateContainerResources changes resources. It returns the resources
	// to change instead. An error means that nothing changes.
	Update(ctx context.Context, p HookPod, c HookContainer, changes *runtimeapi.LinuxContainerResources) (*runtimeapi.LinuxContainerResources, []HookUpdate, error)
	// Event is called at each event. c is nil if the event belongs to a sandbox. If e.Refusable,
	// an error means that the operation fails. Other errors are logged.
	Event(ctx context.Context, e HookEvent, p HookPod, c *HookContainer) ([]HookUpdate, error)
}

// HookEvent is an event of a sandbox or container.
type HookEvent string

// The events. Each object has at most one event of a kind, except updates.
const (
	// HookPodRun: a sandbox is complete. If it is refused, the sandbox is removed.
	HookPodRun HookEvent = "RunPodSandbox"
	// HookPodUpdate: UpdatePodSandboxResources was called. HookPod has the new resources.
	HookPodUpdate  HookEvent = "UpdatePodSandbox"
	HookPodUpdated HookEvent = "PostUpdatePodSandbox"
	// HookPodStop: all containers of a sandbox have ended. Its network still exists.
	HookPodStop   HookEvent = "StopPodSandbox"
	HookPodRemove HookEvent = "RemovePodSandbox"

	HookCreated HookEvent = "PostCreateContainer"
	// HookStart: a container is about to start. If it is refused, the container remains created.
	HookStart   HookEvent = "StartContainer"
	HookStarted HookEvent = "PostStartContainer"
	HookUpdated HookEvent = "PostUpdateContainer"
	// HookStop: a container has ended, for any reason, or could not be created.
	HookStop   HookEvent = "StopContainer"
	HookRemove HookEvent = "RemoveContainer"
)

// Refusable reports whether an error of Event makes the operation fail.
func (e HookEvent) Refusable() bool {
	return e == HookPodRun || e == HookPodUpdate || e == HookStart
}

// HookPod is a sandbox.
type HookPod struct {
	ID      string
	Config  *runtimeapi.PodSandboxConfig
	Handler string   // "" means the default
	Netns   string   // path of the network namespace; "" is the host's
	IPs     []string // addresses in the pod's network
	// Overhead and Resources have the values of the last UpdatePodSandboxResources, or are nil.
	Overhead, Resources *runtimeapi.LinuxContainerResources
}

// HookContainer is a container.
type HookContainer struct {
	PodID  string
	Config *runtimeapi.ContainerConfig
	Status *runtimeapi.ContainerStatus
	PID    int // of its first process; 0 if it does not run
	// Spec is the container's configuration, with its present resources. It is nil if the
	// configuration cannot be read.
	Spec *specs.Spec
}

// HookChange is what Create wants to change.
type HookChange struct {
	// Spec is the configuration of the container. If it is nil, the configuration does not change.
	Spec *specs.Spec
	// By names who changed the configuration, for the error if the change is not possible.
	By string
	// Updates are made before the container is created.
	Updates []HookUpdate
}

// HookUpdate changes the resources of a container.
type HookUpdate struct {
	ContainerID string
	// Resources are changed as by UpdateContainerResources. 0 and "" change nothing.
	Resources *runtimeapi.LinuxContainerResources
	// IgnoreFailure means that a failure is only logged.
	IgnoreFailure bool
}

// HookHost is the runtime for its [Hooks].
type HookHost interface {
	// Snapshot returns all complete sandboxes and containers, the oldest first.
	Snapshot(ctx context.Context) ([]HookPod, []HookContainer)
	// Update makes an update, without calling the hooks. It must not be called by a method of
	// Hooks: it waits for the start and for earlier updates of the container.
	Update(ctx context.Context, u HookUpdate) error
	// Inject adds CDI devices to spec, as for a request that names them.
	Inject(ctx context.Context, spec *specs.Spec, names []string) error
}

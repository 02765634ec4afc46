// Package observed has the states of pods in a container runtime as plain values, without protocol
// types and third-party code.
//
// Package cri reads these values from a CRI runtime. Packages such as pleg, podstatus and
// podruntime base their decisions on them. A program with another source of facts, such as a
// Virtual Kubelet provider or a test, fills in these structs itself.
//
// Values that a reader returns are shared: do not change a *Pod or anything in it.
//
// Tier: beta.
package observed

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// State is the state of a container or a sandbox. A READY sandbox is Running, and a NOT_READY
// sandbox is Exited.
type State uint8

// The states of the CRI's ContainerState. Unknown, the zero value, means that the runtime does not
// know the state.
const (
	Unknown State = iota
	Created
	Running
	Exited
)

// String returns the state in lower case, as in labels of metrics.
func (s State) String() string {
	switch s {
	case Created:
		return "created"
	case Running:
		return "running"
	case Exited:
		return "exited"
	default:
		return "unknown"
	}
}

// Listed is one pod in a runtime's lists. The lists are cheap to read for all pods at once, and
// show that a pod has changed.
type Listed struct {
	UID       types.UID
	Name      string
	Namespace string

	// Sandboxes and Containers have every instance, including dead ones, in the runtime's order,
	// which has no meaning.
	Sandboxes  []Item
	Containers []Item
}

// Item is one sandbox or container of a Listed.
type Item struct {
	ID    string
	State State
}

// Pod has everything that the runtime reports about one pod. A Pod with only the UID set means that
// the runtime has no sandbox and no container of the pod.
type Pod struct {
	UID       types.UID
	Name      string
	Namespace string

	// ObservedAt is a time just before the runtime was read: the Pod has all changes that the
	// runtime made before this time. It has a monotonic clock reading.
	ObservedAt time.Time

	// Sandboxes are sorted newest first, and so are the Containers of one name. A higher attempt
	// is newer, since it does not depend on a clock. With equal attempts, running instances come
	// first. Then creation time and ID decide.
	Sandboxes  []Sandbox
	Containers []Container
}

// Sandbox is one pod sandbox instance.
type Sandbox struct {
	ID        string
	State     State
	Attempt   uint32
	CreatedAt time.Time

	// IPs has the addresses in the order of [Addresses], primary first. It is empty for a pod in the
	// host's network.
	IPs []string
	// HasNetwork reports that the runtime reported network information, even if it has no address.
	HasNetwork bool
	// HostNetwork, HostPID and HostIPC report which namespaces the sandbox shares with the node.
	HostNetwork, HostPID, HostIPC bool
	RuntimeHandler                string

	Labels      map[string]string
	Annotations map[string]string
}

// Container is one container instance.
type Container struct {
	ID        string
	Name      string
	SandboxID string // "" if the runtime does not report it
	Attempt   uint32
	State     State

	// Image is the image name that the container was created with. ImageRef is the reference to
	// which the runtime resolved it, usually with a digest. ImageID is the image's ID.
	Image    string
	ImageRef string
	ImageID  string

	CreatedAt time.Time
	// StartedAt is zero before the start, and FinishedAt is zero before the end.
	StartedAt  time.Time
	FinishedAt time.Time

	// ExitCode is nil until the runtime has reported the exit code; see [Container.Code]. Reason and
	// Message are meaningful when State is Exited.
	ExitCode *int32
	Reason   string
	Message  string

	// Abandoned reports that the caller of the container's start went away during the call, so that
	// no process of the container ever ran or will run. The runtime reports the state Exited;
	// [Pod.Settled] changes it to Created.
	Abandoned bool

	// RestartCount and Hash come from the annotations that the agent put on the container
	// (io.kubernetes.container.restartCount and .hash). Without the annotations Hash is "" and
	// RestartCount is Attempt.
	RestartCount int32
	Hash         string

	// StopSignal is the name of the stop signal in the API, such as SIGTERM or SIGRTMIN+3. It is
	// "" if the signal is not known.
	StopSignal string
	// Mounts has only the mounts about which the runtime knows more than the pod's spec: recursively
	// read-only mounts, and mounts of images.
	Mounts []Mount
	// LogPath is the log file on the node.
	LogPath string
	// Resources are the resources that the runtime reports. It is nil if the runtime reports
	// none.
	Resources *Resources
	// User is the user that the runtime reports. It is nil if the runtime reports none.
	User *User

	Labels      map[string]string
	Annotations map[string]string
}

// Resources are a container's effective limits in cgroup terms. Zero means
// unlimited or unknown.
type Resources struct {
	CPUPeriod   int64 // microseconds
	CPUQuota    int64 // microseconds per period
	CPUShares   int64
	MemoryLimit int64 // bytes
}

// Mount has the facts about a mount of a container that the runtime reports.
type Mount struct {
	Path string // path in the container
	// RecursiveReadOnly reports that mounts below the mount are read-only too.
	RecursiveReadOnly bool
	// ImageRef is the image that is mounted, or "".
	ImageRef string
}

// User is the identity of a container's first process.
type User struct {
	UID, GID           int64
	SupplementalGroups []int64
}

// NewestSandbox returns the newest sandbox, or nil if there is none.
func (p *Pod) NewestSandbox() *Sandbox {
	if p == nil || len(p.Sandboxes) == 0 {
		return nil
	}
	return &p.Sandboxes[0]
}

// Newest returns the newest container of that name, or nil if there is none.
func (p *Pod) Newest(name string) *Container {
	if p == nil {
		return nil
	}
	for i := range p.Containers {
		if p.Containers[i].Name == name {
			return &p.Containers[i]
		}
	}
	return nil
}

// Surplus returns the containers that run or may run beside a newer instance of the same name,
// newest first. There are such containers only if an instance was made by a program that did not
// know the previous one.
func (p *Pod) Surplus() []*Container {
	if p == nil {
		return nil
	}
	var out []*Container
	for i := range p.Containers {
		if c := &p.Containers[i]; c.State.Runs() != No && p.Newest(c.Name) != c {
			out = append(out, c)
		}
	}
	return out
}

// Settled returns the pod with the state of abandoned containers changed to Created, so that they
// are replaced like containers that were never started, whatever the restart policy is. p is not
// changed; it is returned if it has no abandoned containers.
func (p *Pod) Settled() *Pod {
	abandoned := func(c Container) bool { return c.Abandoned && c.State == Exited }
	if p == nil || !slices.ContainsFunc(p.Containers, abandoned) {
		return p
	}
	out := *p
	out.Containers = slices.Clone(p.Containers)
	for i := range out.Containers {
		if c := &out.Containers[i]; abandoned(*c) {
			c.State, c.FinishedAt = Created, time.Time{}
			c.ExitCode, c.Reason, c.Message = nil, "", ""
		}
	}
	return &out
}

// Code returns the exit code of a container that has ended. If the runtime has not reported the
// code yet, as for a container that was just stopped, Code returns the exit code of a kill: an
// unknown end must not count as a success.
func (c *Container) Code() int32 {
	if c.ExitCode == nil {
		return 128 + 9 // SIGKILL
	}
	return *c.ExitCode
}

// IPs returns the addresses of the newest sandbox. If that is not ready, IPs returns nil.
func (p *Pod) IPs() []string {
	if s := p.NewestSandbox(); s != nil && s.State == Running {
		return s.IPs
	}
	return nil
}

// Package observed describes what a container runtime shows of pods, in plain
// values that carry no client, no protocol types and no third-party code.
//
// It is the vocabulary between whoever reads a runtime (package cri does it
// over a CRI socket) and whoever decides by what was read (pleg, podstatus,
// podruntime). A program with another source of facts, such as a Virtual
// Kubelet provider or a test, fills these structs itself.
//
// Values handed out by a reader are shared: treat a *Pod and all that it
// holds as read-only.
//
// Tier: beta.
package observed

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// State is a container's or a sandbox's state. A READY sandbox is Running, a
// NOT_READY one Exited.
type State uint8

// The states of the CRI's ContainerState, and Unknown, the zero value, for
// whatever the runtime cannot tell.
const (
	Unknown State = iota
	Created
	Running
	Exited
)

// String returns the state in lower case, as metrics label it.
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

// Listed is one pod as a runtime's lists show it: cheap to get for all pods
// at once, and enough to see that something changed.
type Listed struct {
	UID       types.UID
	Name      string
	Namespace string

	// Sandboxes and Containers hold every instance, dead ones included.
	// Their order is the runtime's own and means nothing.
	Sandboxes  []Item
	Containers []Item
}

// Item is one sandbox or container of a Listed.
type Item struct {
	ID    string
	State State
}

// Pod is everything the runtime shows of one pod. The zero value, with the
// UID alone, means that the runtime has nothing of it.
type Pod struct {
	UID       types.UID
	Name      string
	Namespace string

	// ObservedAt was taken before the runtime was asked: whatever the
	// runtime did before this moment is in here. It has a monotonic reading.
	ObservedAt time.Time

	// Sandboxes are ordered newest first, and so are the Containers of one
	// name: by attempt, which no clock makes, then those that run, then by
	// creation time and by ID.
	Sandboxes  []Sandbox
	Containers []Container
}

// Sandbox is one pod sandbox instance.
type Sandbox struct {
	ID        string
	State     State
	Attempt   uint32
	CreatedAt time.Time

	// IPs holds the primary address first, in the order of Addresses. Empty
	// for host network.
	IPs []string
	// HasNetwork reports that the runtime reported network information at
	// all, be it without an address.
	HasNetwork bool
	// HostNetwork, HostPID and HostIPC tell which namespaces are the node's.
	HostNetwork, HostPID, HostIPC bool
	RuntimeHandler                string

	Labels      map[string]string
	Annotations map[string]string
}

// Container is one container instance.
type Container struct {
	ID        string
	Name      string
	SandboxID string // "" if the runtime did not tell
	Attempt   uint32
	State     State

	// Image is the name the container was created with, ImageRef what the
	// runtime resolved it to (mostly a digest), ImageID the image's own id.
	Image    string
	ImageRef string
	ImageID  string

	CreatedAt time.Time
	// StartedAt is zero before the start, FinishedAt before the end.
	StartedAt  time.Time
	FinishedAt time.Time

	// ExitCode is nil until the runtime has told how the container ended; see [Container.Code].
	// Reason and Message are meaningful when State is Exited.
	ExitCode *int32
	Reason   string
	Message  string

	// Abandoned reports that whoever asked for the container's start went away
	// meanwhile: nothing of it ever ran, or will. The runtime shows it as
	// Exited, Settled as Created.
	Abandoned bool

	// RestartCount and Hash come from the annotations the agent put on the
	// container (io.kubernetes.container.restartCount and .hash); Hash is ""
	// and RestartCount is Attempt where they are missing.
	RestartCount int32
	Hash         string

	// StopSignal is the signal's name as the API has it, such as SIGTERM or
	// SIGRTMIN+3, or "".
	StopSignal string
	// Mounts are those of which the runtime knows more than the pod's spec:
	// mounts that are read-only all the way down, and mounts of images. The
	// others are left out.
	Mounts []Mount
	// LogPath is the log file on the node.
	LogPath string
	// Resources as the runtime reports them, nil if it does not.
	Resources *Resources
	// User the runtime resolved, nil if it does not tell.
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

// Mount is what became of one of a container's mounts.
type Mount struct {
	Path string // in the container
	// RecursiveReadOnly reports that what is mounted below it is read-only too.
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

// Surplus returns the containers that run, or may, beside a newer instance of their
// name, newest first. There are none unless somebody made an instance without
// knowing of the one before.
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

// Settled returns the pod with its abandoned containers as Created: they are
// to be replaced as if they had never been, whatever the restart policy says.
// p itself is not changed, and is returned when it has none.
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

// Code returns the exit code of a container that has ended. If the runtime has not told, as of
// one that was stopped a moment ago, it is that of a kill: nothing counts as a success before it
// is known to be one.
func (c *Container) Code() int32 {
	if c.ExitCode == nil {
		return 128 + 9 // SIGKILL
	}
	return *c.ExitCode
}

// IPs returns the addresses of the newest sandbox if it is ready, else nil.
func (p *Pod) IPs() []string {
	if s := p.NewestSandbox(); s != nil && s.State == Running {
		return s.IPs
	}
	return nil
}

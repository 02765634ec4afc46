package stats

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/cri/observed"
)

// Runtime has the values that only the container runtime knows. Calls must end with
// ctx, which has a deadline of ten seconds. Lists may be in any order.
type Runtime interface {
	// Sandboxes lists all pod sandboxes, including those that are not running.
	Sandboxes(ctx context.Context) ([]Sandbox, error)
	// Containers returns all containers. Their Usage has to be set only if measured is
	// true.
	Containers(ctx context.Context, measured bool) ([]Container, error)
	// Filesystems returns the file systems of images and containers, like the CRI's
	// ImageFsInfo.
	Filesystems(ctx context.Context) (images, containers []Filesystem, err error)
}

// Sandbox is a pod's sandbox. ID is the runtime's, UID the pod's.
type Sandbox struct {
	ID              string
	UID             types.UID
	Name, Namespace string
	Attempt         uint32 // orders a pod's sandboxes, before CreatedAt
	CreatedAt       time.Time
	// Ready reports that the sandbox runs.
	Ready       bool
	HostNetwork bool                   // the pod has no network of its own
	Network     *statsapi.NetworkStats // nil: the runtime does not report it, and a process of the pod is read
}

// Container is what the runtime reports about one container, running or not.
type Container struct {
	ID, Name, SandboxID string
	Running             bool
	Attempt             uint32 // orders the instances of a container, before CreatedAt
	CreatedAt           time.Time
	// StartedAt is the time of the container's start. It is zero if the runtime does not report
	// it; CreatedAt is then used.
	StartedAt time.Time
	// Usage is the runtime's measurement, which is used if the container's cgroup cannot be
	// found. It is nil if the runtime measures nothing.
	Usage *Usage
	// Layer is the writable layer. It is nil if the layer is not known.
	Layer *Filesystem
}

// Filesystem is the usage of a part of a file system. Mountpoint is "" if it is not
// known; Used is in bytes.
type Filesystem struct {
	Mountpoint       string
	Used, InodesUsed *uint64
	At               time.Time
}

// Volumes measures pods' volumes. An error does not prevent the result: the volumes
// that could be measured are returned with it. A call must return when ctx ends. Calls
// do not overlap.
type Volumes interface {
	Stats(ctx context.Context, pod types.UID) ([]Volume, error)
}

// Volume is the usage of one volume of a pod.
type Volume struct {
	statsapi.VolumeStats
	// Ephemeral reports that it counts as the pod's ephemeral storage: an emptyDir
	// on disk does; a volume with a claim or in memory does not.
	Ephemeral bool
}

// livePods returns one sandbox for each pod: the newest sandbox that is ready or, if none is
// ready, the newest one. After a sandbox was replaced, the old one exists for a while.
func livePods(all []Sandbox) map[types.UID]*Sandbox {
	out := make(map[types.UID]*Sandbox, len(all))
	for i := range all {
		s := &all[i]
		old := out[s.UID]
		if old == nil || s.Ready != old.Ready && s.Ready || s.Ready == old.Ready && observed.NewestFirst(s.instance(), old.instance()) < 0 {
			out[s.UID] = s
		}
	}
	return out
}

// instance returns the order of the sandboxes of a pod.
func (s *Sandbox) instance() observed.Instance {
	return observed.Instance{Attempt: s.Attempt, Running: s.Ready, CreatedAt: s.CreatedAt, ID: s.ID}
}

// instance returns the order of the instances of a container.
func (c *Container) instance() observed.Instance {
	return observed.Instance{Attempt: c.Attempt, Running: c.Running, CreatedAt: c.CreatedAt, ID: c.ID}
}

// running returns the running containers by sandbox. If two of one name run, as for a
// moment during a replacement, only the newer one is returned. The pointers refer to
// elements of all.
func running(all []Container) map[string][]*Container {
	out := map[string][]*Container{}
next:
	for i := range all {
		c := &all[i]
		if !c.Running {
			continue
		}
		list := out[c.SandboxID]
		for j, old := range list {
			if old.Name == c.Name {
				if observed.NewestFirst(c.instance(), old.instance()) < 0 {
					list[j] = c
				}
				continue next
			}
		}
		out[c.SandboxID] = append(list, c)
	}
	return out
}

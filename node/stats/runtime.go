package stats

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/cri/observed"
)

// Runtime is what only the container runtime knows. Calls must end with ctx. A call
// is bounded by Config.Timeout. Lists may be in any order.
type Runtime interface {
	// Sandboxes lists all pod sandboxes, dead ones included.
	Sandboxes(ctx context.Context) ([]Sandbox, error)
	// Containers lists all containers. What the runtime has measured of them
	// need not be told, unless it is asked for.
	Containers(ctx context.Context, measured bool) ([]Container, error)
	// Filesystems says where images and containers are kept, as the CRI's
	// ImageFsInfo does.
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
	HostNetwork bool                   // it has none of its own
	Network     *statsapi.NetworkStats // nil: the runtime does not tell, and its processes are asked
}

// Container is a container.
type Container struct {
	ID, Name, SandboxID string
	Running             bool
	Attempt             uint32 // orders the instances of a container, before CreatedAt
	CreatedAt           time.Time
	// StartedAt is zero if the runtime does not say; CreatedAt stands in for it
	// then.
	StartedAt time.Time
	// Usage is what the runtime measured, for a container whose cgroup cannot
	// be found; nil if it measured nothing.
	Usage *Usage
	// Layer is the writable layer; nil if it is not known.
	Layer *Filesystem
}

// Filesystem is how much of a file system something takes. Mountpoint is "" if it
// is not known; Used is in bytes.
type Filesystem struct {
	Mountpoint       string
	Used, InodesUsed *uint64
	At               time.Time
}

// Volumes measures pods' volumes. What could be measured is returned beside the
// errors of others; calls must end with ctx. It is called for one pod after the
// other.
type Volumes interface {
	Stats(ctx context.Context, pod types.UID) ([]Volume, error)
}

// Volume is a volume of a pod. An emptyDir on disk does; a claim's volume and one
// in memory do not.
type Volume struct {
	statsapi.VolumeStats
	// Ephemeral reports that it counts as the pod's own storage on the node.
	Ephemeral bool
}

// livePods chooses one sandbox for each pod: the newest of those that are ready, or
// else the newest. A pod whose sandbox was made anew has the old one beside it for
// a while.
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

// instance returns what orders the sandboxes of a pod.
func (s *Sandbox) instance() observed.Instance {
	return observed.Instance{Attempt: s.Attempt, Running: s.Ready, CreatedAt: s.CreatedAt, ID: s.ID}
}

// instance returns what orders the instances of a container.
func (c *Container) instance() observed.Instance {
	return observed.Instance{Attempt: c.Attempt, Running: c.Running, CreatedAt: c.CreatedAt, ID: c.ID}
}

// running lists the running containers by their sandbox; the newest of those with
// the same name. The pointers are into all. Two of a name may run for a moment,
// when one is being replaced.
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

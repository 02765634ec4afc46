package eviction

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/eviction/rank"
)

// Stats reads the usage of the node and its pods. Each call should read current figures. A cached
// figure must have its time: a figure is used for one decision only, and a figure from before the
// end of the last eviction is not used.
//
// A result that is returned together with an error has the parts that could be read, and is used.
// Different methods are called concurrently, and should return soon after ctx ends. A lane makes
// one call at a time.
type Stats interface {
	Memory(ctx context.Context) (Memory, error)
	Disks(ctx context.Context) (Disks, error)
	// Processes returns the number of processes that can still be created, and the maximum.
	Processes(ctx context.Context) (rank.Observation, error)
	// Pods returns the wanted figures of pods. A pod that is missing from the result has no
	// figures.
	Pods(ctx context.Context, pods []*v1.Pod, want Want) (map[types.UID]*rank.Usage, error)
}

// Want selects the figures of pods to read.
type Want int

// The values of Want.
const (
	WantMemory Want = iota
	WantDisk
	WantProcesses
)

// String returns memory, disk or processes.
func (w Want) String() string { return [...]string{"memory", "disk", "processes"}[w] }

// MemoryFigure is the memory of a cgroup, in bytes. The available memory is the limit minus the
// working set.
type MemoryFigure struct {
	rank.Observation
	// InactiveFile is the inactive page cache: part of the usage, but not of the working set.
	InactiveFile int64
}

// Memory has the memory of the node and of the cgroup of all pods. Nil means unknown.
type Memory struct{ Node, Pods *MemoryFigure }

// Filesystem is one filesystem of the node. Nil means unknown.
type Filesystem struct {
	Device string // identifies the filesystem
	Bytes  *rank.Observation
	Inodes *rank.Observation
}

// Disks has the filesystems of pods' files, of images, and of writable layers. An empty Image or
// Container equals the previous field.
type Disks struct{ Node, Image, Container Filesystem }

// observations has the result of one reading; a missing signal is unknown.
type observations map[rank.Signal]rank.Observation

func (o observations) add(s rank.Signal, v *rank.Observation) {
	if v != nil {
		o[s] = *v
	}
}

// read reads the lane's signals from Stats, within statsTimeout. It returns the readable
// ones together with the error.
func (l *lane) read(ctx context.Context) (observations, error) {
	ctx, cancel := context.WithTimeout(ctx, statsTimeout)
	defer cancel()
	out := observations{}
	if l.own != nil {
		o, err := l.own.Read(ctx)
		if err == nil {
			out.add(l.own.Name, &o)
		}
		return out, wrap("read "+string(l.own.Name), err)
	}
	switch l.condition {
	case v1.NodeMemoryPressure:
		mem, err := l.m.cfg.Stats.Memory(ctx)
		if mem.Node != nil {
			out.add(rank.SignalMemory, &mem.Node.Observation)
		}
		if mem.Pods != nil {
			out.add(rank.SignalAllocatableMemory, &mem.Pods.Observation)
		}
		l.aim(mem)
		return out, wrap("read memory", err)
	case v1.NodeDiskPressure:
		d, err := l.m.cfg.Stats.Disks(ctx)
		fill := func(to *Filesystem, from Filesystem) {
			if to.Device == "" && to.Bytes == nil && to.Inodes == nil {
				*to = from
			}
		}
		if err == nil { // after an error, missing parts may have failed
			fill(&d.Image, d.Node)
			fill(&d.Container, d.Image)
		}
		out.add(rank.SignalNodeFs, d.Node.Bytes)
		out.add(rank.SignalNodeFsInodes, d.Node.Inodes)
		out.add(rank.SignalImageFs, d.Image.Bytes)
		out.add(rank.SignalImageFsInodes, d.Image.Inodes)
		out.add(rank.SignalContainerFs, d.Container.Bytes)
		out.add(rank.SignalContainerFsInodes, d.Container.Inodes)
		if err == nil {
			// A missing part would look like another layout, and change the order of eviction.
			l.setLayout(rank.LayoutOf(d.Node.Device, d.Image.Device, d.Container.Device))
		}
		return out, wrap("read filesystems", err)
	default:
		p, err := l.m.cfg.Stats.Processes(ctx)
		if err == nil {
			out.add(rank.SignalPIDs, &p)
		}
		return out, wrap("read processes", err)
	}
}

// wrap adds what was being done to an error; nil stays nil.
func wrap(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// want returns the figures of pods that the lane needs: a shortage of memory must not wait for a
// walk of volumes.
func (l *lane) want() Want {
	switch l.condition {
	case v1.NodeMemoryPressure:
		return WantMemory
	case v1.NodeDiskPressure:
		return WantDisk
	default:
		return WantProcesses
	}
}

// usage reads the pods' usage for the lane's signals.
func (l *lane) usage(ctx context.Context, pods []*v1.Pod) (map[types.UID]*rank.Usage, error) {
	if l.own == nil {
		return l.m.cfg.Stats.Pods(ctx, pods, l.want())
	}
	out := make(map[types.UID]*rank.Usage, len(pods))
	if l.own.Usage == nil {
		for _, p := range pods {
			out[p.UID] = &rank.Usage{}
		}
		return out, nil
	}
	used, err := l.own.Usage(ctx, pods)
	for uid, n := range used {
		out[uid] = &rank.Usage{Own: n}
	}
	return out, err
}

// candidates returns the pods with their usage, in the order of pods. A nil Usage is unknown.
// After an error, some pods may be missing.
func (l *lane) candidates(ctx context.Context, pods []*v1.Pod) ([]rank.Candidate, error) {
	ctx, cancel := context.WithTimeout(ctx, statsTimeout)
	defer cancel()
	usage, err := l.usage(ctx, pods)
	if err == nil && usage == nil && len(pods) > 0 {
		err = errors.New("no usage of the pods was returned")
	}
	out := make([]rank.Candidate, len(pods))
	for i, p := range pods {
		out[i] = rank.Candidate{Pod: p, Usage: usage[p.UID]}
	}
	return out, wrap("read pods", err)
}

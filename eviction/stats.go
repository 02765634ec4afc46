package eviction

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/eviction/rank"
)

// Stats reads figures. They are asked for when a decision is made, so that
// each call should read anew; one that answers from a cache says so by the
// time of what it returns, and no decision is made on the same figure twice,
// nor on one from before the last eviction.
//
// What is returned beside an error counts: it is the parts that could be read.
// Calls of different methods are made at the same time, and should return soon
// after ctx ends. A lane makes one call at a time.
type Stats interface {
	Memory(ctx context.Context) (Memory, error)
	Disks(ctx context.Context) (Disks, error)
	// Processes of the node: how many more can be, and how many at most.
	Processes(ctx context.Context) (rank.Observation, error)
	// Pods reads what is wanted of those pods. One that is missing from the
	// result has no figures.
	Pods(ctx context.Context, pods []*v1.Pod, want Want) (map[types.UID]*rank.Usage, error)
}

// Want defines which figures of pods are worth reading.
type Want int

// What can be wanted.
const (
	WantMemory Want = iota
	WantDisk
	WantProcesses
)

// String returns memory, disk or processes.
func (w Want) String() string { return [...]string{"memory", "disk", "processes"}[w] }

// MemoryFigure is the memory of a group of processes, in bytes: what is
// available is its limit less its working set.
type MemoryFigure struct {
	rank.Observation
	// InactiveFile is what counts as used and not as working set.
	InactiveFile int64
}

// Memory is that of the node and of the cgroup of all pods. Nil means not
// known.
type Memory struct{ Node, Pods *MemoryFigure }

// Filesystem is one filesystem of the node. Nil means not known.
type Filesystem struct {
	Device string // names it; equal for directories on the same one
	Bytes  *rank.Observation
	Inodes *rank.Observation
}

// Disks are the filesystems of pods' files, of images, and of what containers
// write. Image and Container may be left out where they are the one before.
type Disks struct{ Node, Image, Container Filesystem }

// observations are those that could be read in one look; a signal that is missing
// is not known.
type observations map[rank.Signal]rank.Observation

func (o observations) add(s rank.Signal, v *rank.Observation) {
	if v != nil {
		o[s] = *v
	}
}

// read asks Stats for the figures of a lane's signals, within Config.StatsTimeout.
// What could be read is returned beside the error.
func (l *lane) read(ctx context.Context) (observations, error) {
	ctx, cancel := context.WithTimeout(ctx, l.m.cfg.StatsTimeout)
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
		if err == nil { // with one, what is left out may be what failed
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
			// A part that is missing would look like another layout, and would
			// change whom a shortage is the fault of.
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

// wrap returns what was being done; nil stays nil.
func wrap(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// want is what the lane's signals need of pods: walking volumes for a shortage of
// memory would take the time that counts.
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

// usage asks for what pods use of what the lane's signals report.
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

// candidates reads the figures of pods, in the order of pods. One without figures
// has a nil Usage. The error, if any, says that some may be missing.
func (l *lane) candidates(ctx context.Context, pods []*v1.Pod) ([]rank.Candidate, error) {
	ctx, cancel := context.WithTimeout(ctx, l.m.cfg.StatsTimeout)
	defer cancel()
	usage, err := l.usage(ctx, pods)
	if err == nil && usage == nil && len(pods) > 0 {
		err = errors.New("there are none")
	}
	out := make([]rank.Candidate, len(pods))
	for i, p := range pods {
		out[i] = rank.Candidate{Pod: p, Usage: usage[p.UID]}
	}
	return out, wrap("read pods", err)
}

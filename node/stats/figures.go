package stats

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Single figures for eviction and for metrics: each is read now, and only what is
// asked for, because a decision by a second-old number may kill the wrong pod.

// Memory is that of the node and of the cgroup of all pods, read now and from
// files alone: no runtime and no disk that hangs can hold it up. Nil, beside an
// error, is not known.
func (m *Collector) Memory() (node, pods *Usage, err error) {
	c := newCgroups(m.cfg.Cgroups)
	var errs failures
	node, err = m.proc.usage(c)
	errs.add("node", err)
	if m.cfg.PodsCgroup != noCgroup {
		pods, err = c.readMemory(rel(m.cfg.PodsCgroup))
		errs.add("cgroup of pods", err)
	}
	return node, pods, errors.Join(errs...)
}

// Threads is how many threads the node may have, and has now. The limit is the
// smaller one of two of the kernel's; nil fields are not known.
func (m *Collector) Threads() (*statsapi.RlimitStats, error) { return m.proc.rlimit() }

// FilesystemDisk is a file system of the node at one time. At is when the question was
// put.
type FilesystemDisk struct {
	Disk
	At time.Time
}

// FilesystemDisks are the file systems of pods' files, of images, and of what
// containers write. Nil is not known; of the last two it may also mean that it
// is the one before.
type FilesystemDisks struct{ Node, Images, Containers *FilesystemDisk }

// Disks reads the node's file systems now, each with a deadline of its own. What
// could be read is returned beside the errors of others. A file system that hangs
// costs Config.Timeout.
func (m *Collector) Disks(ctx context.Context) (FilesystemDisks, error) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Timeout)
	defer cancel()
	var out FilesystemDisks
	var errs failures
	ask := func(what, path string) *FilesystemDisk {
		at := time.Now()
		d, err := m.disks.ask(ctx, path)
		if err != nil {
			errs.add("file system of "+what, fmt.Errorf("%s: %w", path, err))
			return nil
		}
		return &FilesystemDisk{Disk: d, At: at}
	}
	out.Node = ask("pods", m.cfg.RootDir)
	images, containers, err := m.cfg.Runtime.Filesystems(ctx)
	if err == nil && len(images) == 0 {
		err = errors.New("the runtime names none for images")
	}
	// Without the runtime the node's own file system is still known: pods can be
	// evicted by it.
	if errs.add("file systems of the runtime", err); err != nil {
		return out, errors.Join(errs...)
	}
	out.Images = ask("images", images[0].Mountpoint)
	// The same mount point is the same file system: nil says so.
	if len(containers) > 0 && containers[0].Mountpoint != images[0].Mountpoint {
		out.Containers = ask("containers", containers[0].Mountpoint)
	}
	return out, errors.Join(errs...)
}

// PodUsage is what the cgroups of a pod tell. Numbers beyond those are nil.
type PodUsage struct {
	*Usage                       // memory and threads alone
	Containers map[string]*Usage // by the runtime's id
}

// PodUsages reads memory and threads of pods now, and from files alone. A pod
// without a cgroup of its own is left out. want is asked about each pod that has a
// cgroup. A node without a cgroup of pods has nil.
func (m *Collector) PodUsages(want func(types.UID) bool) (map[types.UID]PodUsage, error) {
	if m.cfg.PodsCgroup == noCgroup {
		return nil, nil
	}
	c := newCgroups(m.cfg.Cgroups)
	dirs, err := c.pods(m.cfg.PodsCgroup)
	if err != nil {
		return nil, fmt.Errorf("stats: cgroups of pods: %w", err)
	}
	out := map[types.UID]PodUsage{}
	for uid, d := range dirs {
		if !want(uid) {
			continue
		}
		u, err := c.readMemory(d.dir)
		if err != nil {
			continue // it is gone by now
		}
		p := PodUsage{Usage: u, Containers: map[string]*Usage{}}
		for id, dir := range d.containers {
			if u, err := c.readMemory(dir); err == nil {
				p.Containers[id] = u
			}
		}
		out[uid] = p
	}
	return out, nil
}

// Pods is the pods' part of a Summary, of those that are wanted and read now. It
// does not share answers: eviction asks about few pods. It blocks for the runtime
// and volumes; the error comes beside what could be read.
func (m *Collector) Pods(ctx context.Context, want func(types.UID) bool) ([]statsapi.PodStats, error) {
	pods, err := m.readPods(ctx, true, nil, want)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return pods, err
}

// readMemory reads what eviction compares: memory and threads. Four files instead
// of a dozen: it is called for all pods, every few seconds when memory is short.
func (c cgroups) readMemory(dir string) (*Usage, error) {
	if !c.v2 {
		return c.readV1(dir)
	}
	u := &Usage{At: time.Now()}
	if u.Memory = c.number(path.Join(dir, "memory.current")); u.Memory == nil {
		return c.readV2(dir) // which says why
	}
	var inactive *uint64
	c.keyed(path.Join(dir, "memory.stat"), map[string]**uint64{"inactive_file": &inactive})
	u.setWorkingSet(inactive)
	u.MemoryLimit = c.number(path.Join(dir, "memory.max"))
	u.Tasks = c.number(path.Join(dir, "pids.current"))
	return u, nil
}

package stats

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Single values for eviction and metrics: each is read during the call, because
// eviction might end the wrong pod if it decided by an old value.

// Memory reads the current memory usage of the node and of the cgroup of all pods. It reads only
// files, so no hanging runtime or disk delays it. If a result is nil, the usage is not known, and
// err has the reason.
func (m *Collector) Memory() (node, pods *Usage, err error) {
	c := m.cgroups()
	var errs failures
	node, err = c.usage()
	errs.add("node", err)
	if m.cfg.PodsCgroup != noCgroup {
		pods, err = c.readMemory(rel(m.cfg.PodsCgroup))
		errs.add("cgroup of pods", err)
	}
	return node, pods, errors.Join(errs...)
}

// Threads returns the limit and the number of the node's threads. The limit is the
// smaller of two limits of the kernel. A nil field means that the value is not known.
func (m *Collector) Threads() (*statsapi.RlimitStats, error) { return m.cgroups().rlimit() }

// FilesystemDisk is a file system of the node at one time. At is the time of the
// call.
type FilesystemDisk struct {
	Disk
	At time.Time
}

// FilesystemDisks are the file systems of pods' files, of images, and of containers' writable
// layers. Nil means not known. If Images or Containers is nil, it may also be the same file system
// as the preceding field.
type FilesystemDisks struct{ Node, Images, Containers *FilesystemDisk }

// Disks reads the node's file systems now, each with a deadline of its own. It returns
// the values that could be read, together with the errors of the others. If a file
// system hangs, the call takes ten seconds.
func (m *Collector) Disks(ctx context.Context) (FilesystemDisks, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
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
		err = errors.New("the runtime reports no file system for images")
	}
	// Without the runtime the node's own file system is still known, which is
	// enough to evict pods.
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

// PodUsage is the usage of a pod's cgroups: only memory and threads are set.
type PodUsage struct {
	*Usage                       // memory and threads
	Containers map[string]*Usage // by the runtime's id
}

// PodUsages reads the current memory usage and threads of pods. It reads only files. want is
// called for each pod that has a cgroup. Pods without a cgroup are left out. If there is no
// cgroup of pods, the result is nil.
func (m *Collector) PodUsages(want func(types.UID) bool) (map[types.UID]PodUsage, error) {
	if m.cfg.PodsCgroup == noCgroup {
		return nil, nil
	}
	c := m.cgroups()
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
			continue // it was removed meanwhile
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

// Pods reads the pods' part of a Summary now, for the pods for which want returns true. Answers
// are not shared with other callers, since eviction asks for few pods. It blocks on the runtime
// and volumes. If something cannot be read, it returns the other values together with the error.
func (m *Collector) Pods(ctx context.Context, want func(types.UID) bool) ([]statsapi.PodStats, error) {
	pods, err := m.readPods(ctx, true, nil, want)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return pods, err
}

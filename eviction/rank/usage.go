package rank

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmeta"
)

// Disk is what takes room on a filesystem.
type Disk struct{ Bytes, Inodes int64 }

// ContainerUsage is what one container uses. Nil means not known.
type ContainerUsage struct {
	Name         string
	Memory       int64 // working set, bytes; 0 if not known
	Rootfs, Logs *Disk // what it wrote to its own layer and to its log
}

// VolumeUsage is what one volume of a pod holds.
type VolumeUsage struct {
	Name string // of the pod's volume
	Used Disk
	Time time.Time // at which it was measured; zero if not known
}

// Usage is what a pod uses. What is not known is 0, or left out.
type Usage struct {
	Time             time.Time // of the oldest part; zero if not known
	Memory           int64     // working set, bytes
	Processes        int64
	EphemeralStorage int64 // of containers, logs and volumes together, bytes
	Containers       []ContainerUsage
	Volumes          []VolumeUsage
	// Own is what the pod uses of the signal in question, in its unit, where that is none of
	// this package's signals.
	Own int64
}

// Candidate is a pod that could be evicted. A nil Usage means that nothing is
// known of it.
type Candidate struct {
	Pod   *v1.Pod
	Usage *Usage
}

// Request is what a pod may expect of a resource, in its unit: the sum over
// containers and sidecars or the most that an init container needs beside the
// sidecars before it (KEP-753), or what the pod itself requests (KEP-2837);
// and the pod's overhead if that is not 0.
func Request(pod *v1.Pod, name v1.ResourceName) int64 {
	total := request(pod, name)
	if total != 0 {
		total += value(pod.Spec.Overhead, name)
	}
	return total
}

func request(pod *v1.Pod, name v1.ResourceName) int64 {
	if r := pod.Spec.Resources; r != nil {
		if q, ok := r.Requests[name]; ok {
			return q.Value()
		}
	}
	return podmeta.SumOf(pod, name, podmeta.RequestsOf)
}

func value(list v1.ResourceList, name v1.ResourceName) int64 {
	if len(list) == 0 {
		return 0
	}
	q := list[name]
	return q.Value()
}

// parts are what of a pod counts for a filesystem.
type parts struct{ rootfs, logs, volumes bool }

// partsOf returns what a pod has on the filesystem of a disk signal. Image
// layers are no pod's own, and never count.
func partsOf(s Signal, l Layout) parts {
	image := s == SignalImageFs || s == SignalImageFsInodes
	container := s == SignalContainerFs || s == SignalContainerFsInodes
	switch {
	case l == LayoutDedicated && (image || container):
		return parts{rootfs: true}
	case l == LayoutDedicated:
		return parts{logs: true, volumes: true}
	case l == LayoutSplit && image:
		return parts{}
	default:
		return parts{rootfs: true, logs: true, volumes: true}
	}
}

func (p parts) of(c Candidate) Disk {
	var sum Disk
	add := func(d *Disk, counts bool) {
		if counts && d != nil {
			sum.Bytes += d.Bytes
			sum.Inodes += d.Inodes
		}
	}
	for i := range c.Usage.Containers {
		add(c.Usage.Containers[i].Rootfs, p.rootfs)
		add(c.Usage.Containers[i].Logs, p.logs)
	}
	if p.volumes {
		for i := range c.Usage.Volumes {
			add(&c.Usage.Volumes[i].Used, isLocal(c.Pod, c.Usage.Volumes[i].Name))
		}
	}
	return sum
}

// isLocal reports whether a volume of that name lies on the node's disk.
func isLocal(pod *v1.Pod, name string) bool {
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Name == name {
			return v.HostPath != nil || isLocalEphemeral(v)
		}
	}
	return false
}

// isLocalEphemeral reports whether a volume lies on the node's disk and ends with
// its pod.
func isLocalEphemeral(v *v1.Volume) bool {
	if v.EmptyDir != nil {
		return v.EmptyDir.Medium == v1.StorageMediumDefault
	}
	return v.GitRepo != nil || v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil
}

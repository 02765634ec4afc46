package rank

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmeta"
)

// Disk is usage of a filesystem.
type Disk struct{ Bytes, Inodes int64 }

// ContainerUsage is the usage of one container. Nil means unknown.
type ContainerUsage struct {
	Name         string
	Memory       int64 // working set, bytes; 0 if unknown
	Rootfs, Logs *Disk // writable layer and log
}

// VolumeUsage is the disk space and the inodes that one volume of a pod uses.
type VolumeUsage struct {
	Name string // name of the volume in the pod's spec
	Used Disk
	Time time.Time // time of the measurement; zero if unknown
}

// Usage is the usage of a pod. Unknown values are 0 or missing.
type Usage struct {
	Time      time.Time // time of the oldest part; zero if unknown
	Memory    int64     // working set, bytes
	Processes int64
	// EphemeralStorage is the pod's usage of the node's disk in bytes, and EphemeralInodes in
	// inodes. They include containers, logs, local volumes, and other files that the pod can
	// write.
	EphemeralStorage int64
	EphemeralInodes  int64
	Containers       []ContainerUsage
	Volumes          []VolumeUsage
	// Own is the pod's usage for a custom signal, in its unit.
	Own int64
}

// Candidate is a pod that could be evicted. A nil Usage means unknown.
type Candidate struct {
	Pod   *v1.Pod
	Usage *Usage
}

// Request returns a pod's effective request of a resource, in the unit of the resource. It is the
// pod-level request (KEP-2837) if there is one. Otherwise it is the sum over containers and
// sidecars or, if that is larger, the largest init container with the sidecars before it
// (KEP-753). The pod's overhead is added.
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

// parts says which parts of a pod count for a filesystem.
type parts struct{ rootfs, logs, volumes bool }

// partsOf returns the parts of a pod that are on the filesystem of a disk signal. Image layers
// never count.
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
		sum.Bytes, sum.Inodes = sum.Bytes+c.beside().Bytes, sum.Inodes+c.beside().Inodes
		for i := range c.Usage.Volumes {
			add(&c.Usage.Volumes[i].Used, isLocal(c.Pod, c.Usage.Volumes[i].Name))
		}
	}
	return sum
}

// beside returns the pod's usage of the node's disk outside of layers, logs and volumes, such as
// termination messages.
func (c Candidate) beside() Disk {
	out := Disk{c.Usage.EphemeralStorage, c.Usage.EphemeralInodes}
	take := func(d *Disk) {
		if d != nil {
			out.Bytes, out.Inodes = out.Bytes-d.Bytes, out.Inodes-d.Inodes
		}
	}
	for i := range c.Usage.Containers {
		take(c.Usage.Containers[i].Rootfs)
		take(c.Usage.Containers[i].Logs)
	}
	for i := range c.Usage.Volumes {
		if v := &c.Usage.Volumes[i]; hasVolume(c.Pod, v.Name, isLocalEphemeral) {
			take(&v.Used)
		}
	}
	return Disk{max(out.Bytes, 0), max(out.Inodes, 0)}
}

// isLocal reports whether the volume with that name is on the node's disk.
func isLocal(pod *v1.Pod, name string) bool {
	return hasVolume(pod, name, func(v *v1.Volume) bool { return v.HostPath != nil || isLocalEphemeral(v) })
}

// hasVolume reports whether a pod has a volume of that name and such a kind.
func hasVolume(pod *v1.Pod, name string, kind func(*v1.Volume) bool) bool {
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Name == name {
			return kind(v)
		}
	}
	return false
}

// isLocalEphemeral reports whether a volume is on the node's disk and is removed with its pod.
func isLocalEphemeral(v *v1.Volume) bool {
	if v.EmptyDir != nil {
		return v.EmptyDir.Medium == v1.StorageMediumDefault
	}
	return v.GitRepo != nil || v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil
}

package rank

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/podmeta"
)

// Limit is a kind of limit of local storage.
type Limit string

// The kinds, as the kubelet labels evictions for them.
const (
	EmptyDirLimit  Limit = "emptydirfs.limit"
	PodLimit       Limit = "ephemeralpodfs.limit"
	ContainerLimit Limit = "ephemeralcontainerfs.limit"
)

// Violation is a limit that a pod exceeds.
type Violation struct {
	Limit     Limit
	Name      string // name of the volume or container; empty for the pod
	Used, Max int64  // bytes
}

// Quantity returns the limit for display.
func (v Violation) Quantity() string { return resource.NewQuantity(v.Max, resource.BinarySI).String() }

// HasLimits reports whether a pod has a limit of local storage, so that its disk usage is
// needed.
func HasLimits(pod *v1.Pod) bool {
	if _, ok := podLimit(pod); ok {
		return true
	}
	for i := range pod.Spec.Volumes {
		if _, ok := sizeLimit(&pod.Spec.Volumes[i]); ok {
			return true
		}
	}
	return false
}

// Level returns the number of bytes that one emptyDir volume may hold before the pod exceeds a
// limit, given the usage of the rest of the pod. It is negative if the rest alone exceeds the
// limit. limited is false if nothing limits the volume, or it is no emptyDir.
func Level(c Candidate, volume string) (level int64, limited bool) {
	for i := range c.Pod.Spec.Volumes {
		v := &c.Pod.Spec.Volumes[i]
		if v.Name != volume || v.EmptyDir == nil {
			continue
		}
		level, limited = sizeLimit(v)
		if all, ok := podLimit(c.Pod); ok && c.Usage != nil && isLocalEphemeral(v) {
			left := all - c.Usage.EphemeralStorage
			for _, u := range c.Usage.Volumes {
				if u.Name == volume {
					left += u.Used.Bytes
				}
			}
			if !limited || left < level {
				level, limited = left, true
			}
		}
	}
	return level, limited
}

// Violated returns the first limit that a pod exceeds: of its emptyDir volumes, then of the pod,
// then of its regular containers. The writable layer of a container counts towards its limit
// unless dedicated is set: layers have their own filesystem then.
func Violated(c Candidate, dedicated bool) (Violation, bool) {
	if c.Usage == nil {
		return Violation{}, false
	}
	for i := range c.Pod.Spec.Volumes {
		vol := &c.Pod.Spec.Volumes[i]
		if limit, ok := sizeLimit(vol); ok {
			for _, u := range c.Usage.Volumes {
				if u.Name == vol.Name && u.Used.Bytes > limit {
					return Violation{EmptyDirLimit, vol.Name, u.Used.Bytes, limit}, true
				}
			}
		}
	}
	if limit, ok := podLimit(c.Pod); ok && c.Usage.EphemeralStorage > limit {
		return Violation{PodLimit, "", c.Usage.EphemeralStorage, limit}, true
	}
	for i := range c.Pod.Spec.Containers {
		ctr := &c.Pod.Spec.Containers[i]
		limit, ok := ctr.Resources.Limits[v1.ResourceEphemeralStorage]
		if !ok {
			continue
		}
		for _, u := range c.Usage.Containers {
			if used := written(u, !dedicated); u.Name == ctr.Name && used > limit.Value() {
				return Violation{ContainerLimit, ctr.Name, used, limit.Value()}, true
			}
		}
	}
	return Violation{}, false
}

func written(u ContainerUsage, rootfs bool) int64 {
	var sum int64
	if u.Logs != nil {
		sum += u.Logs.Bytes
	}
	if rootfs && u.Rootfs != nil {
		sum += u.Rootfs.Bytes
	}
	return sum
}

func sizeLimit(v *v1.Volume) (int64, bool) {
	if v.EmptyDir == nil || v.EmptyDir.SizeLimit == nil || v.EmptyDir.SizeLimit.Sign() <= 0 {
		return 0, false
	}
	return v.EmptyDir.SizeLimit.Value(), true
}

// podLimit returns the sum of the containers' limits. A container without a limit adds nothing.
func podLimit(pod *v1.Pod) (int64, bool) {
	set := func(list []v1.Container) bool {
		for i := range list {
			if _, ok := list[i].Resources.Limits[v1.ResourceEphemeralStorage]; ok {
				return true
			}
		}
		return false
	}
	if !set(pod.Spec.InitContainers) && !set(pod.Spec.Containers) {
		return 0, false
	}
	return podmeta.SumOf(pod, v1.ResourceEphemeralStorage, podmeta.LimitsOf) + value(pod.Spec.Overhead, v1.ResourceEphemeralStorage), true
}

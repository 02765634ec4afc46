// Package podcgroup finds the pod's UID and the container's ID in a cgroup path, by the names
// that the kubelet and container runtimes give to cgroups. With the cgroupfs driver:
//
//	/kubepods/burstable/pod<uid>/<container>
//
// With the systemd driver:
//
//	/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice/cri-containerd-<container>.scope
//
// Both may be below any parent cgroup, on cgroup v1 and v2.
package podcgroup

import "strings"

// Locate returns the pod's UID and the container's ID for the path of a cgroup, which may also be a
// cgroup within a container. For a pod's own cgroup, container is "". For a path outside of pods,
// both are "".
func Locate(path string) (pod, container string) {
	inPods := false
	for part := range strings.SplitSeq(path, "/") {
		switch {
		case part == "" || part == ".":
		case pod != "":
			return pod, ContainerID(part)
		case !inPods:
			inPods = isPodsRoot(part)
		default:
			pod = PodUID(part)
		}
	}
	return pod, ""
}

// isPodsRoot reports whether name is the name of the parent cgroup of all pods. With systemd the
// name may include the cgroup's own parents: a-b-kubepods.slice.
func isPodsRoot(name string) bool {
	if unit, ok := strings.CutSuffix(name, ".slice"); ok {
		return unit == "kubepods" || strings.HasSuffix(unit, "-kubepods")
	}
	return name == "kubepods"
}

// PodUID returns the UID in the name of a pod's cgroup. name is the last element of the cgroup's
// path. It returns "" for other cgroups.
func PodUID(name string) string {
	if unit, ok := strings.CutSuffix(name, ".slice"); ok {
		// In systemd's names a dash separates levels, so the UID has underscores instead of dashes.
		uid, ok := strings.CutPrefix(unit[strings.LastIndexByte(unit, '-')+1:], "pod")
		if !ok {
			return ""
		}
		return strings.ReplaceAll(uid, "_", "-")
	}
	uid, ok := strings.CutPrefix(name, "pod")
	if !ok {
		return ""
	}
	return uid
}

// ContainerID returns the ID in the name of a container's cgroup. name is the last element
// of the cgroup's path. The ID is the part after the last dash of a systemd scope, and
// otherwise the whole name.
func ContainerID(name string) string {
	if unit, ok := strings.CutSuffix(name, ".scope"); ok {
		return unit[strings.LastIndexByte(unit, '-')+1:]
	}
	return name
}

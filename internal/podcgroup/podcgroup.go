// Package podcgroup parses pods and containers from cgroup paths, with the names
// that the kubelet and the runtimes use. With the cgroupfs driver:
//
//	/kubepods/burstable/pod<uid>/<container>
//
// With the systemd driver:
//
//	/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice/cri-containerd-<container>.scope
//
// Both may be below any root, on cgroup v1 and v2.
package podcgroup

import "strings"

// Locate returns the pod's UID and the container's ID for a cgroup path. The path may be that of
// a cgroup within a container. For a pod's own cgroup, container is "". For a path outside pods,
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

// isPodsRoot reports whether a name is that of the root cgroup of all pods. With systemd the name
// may include parents: a-b-kubepods.slice.
func isPodsRoot(name string) bool {
	if unit, ok := strings.CutSuffix(name, ".slice"); ok {
		return unit == "kubepods" || strings.HasSuffix(unit, "-kubepods")
	}
	return name == "kubepods"
}

// PodUID returns the UID in the name of a pod's cgroup, the last element of its path. It returns
// "" for other cgroups.
func PodUID(name string) string {
	if unit, ok := strings.CutSuffix(name, ".slice"); ok {
		// A dash separates systemd's levels: dashes of the UID are underscores.
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

// ContainerID returns the ID in the name of a container's cgroup, the last element
// of its path. It is the part after the last dash of a systemd scope; otherwise it
// is the whole name.
func ContainerID(name string) string {
	if unit, ok := strings.CutSuffix(name, ".scope"); ok {
		return unit[strings.LastIndexByte(unit, '-')+1:]
	}
	return name
}

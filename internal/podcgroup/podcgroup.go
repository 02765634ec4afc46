// Package podcgroup reads pods and containers out of the names of cgroups, as
// the kubelet and the runtimes give them: with the cgroupfs driver
//
//	/kubepods/burstable/pod<uid>/<container>
//
// and with that of systemd
//
//	/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice/cri-containerd-<container>.scope
//
// both below any root, on cgroup v1 and v2 alike.
package podcgroup

import "strings"

// Locate finds the pod's UID and the container's ID in a cgroup's path, which
// may be that of a cgroup within the container. Both are "" if the path leads
// into no pod, and the ID is if it ends there.
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

// isPodsRoot reports whether a name is that of the cgroup above all pods. With
// systemd it may have parents in its name: a-b-kubepods.slice.
func isPodsRoot(name string) bool {
	if unit, ok := strings.CutSuffix(name, ".slice"); ok {
		return unit == "kubepods" || strings.HasSuffix(unit, "-kubepods")
	}
	return name == "kubepods"
}

// PodUID is the UID in the name of a pod's cgroup, the last element of its path;
// "" if it is no pod's.
func PodUID(name string) string {
	if unit, ok := strings.CutSuffix(name, ".slice"); ok {
		// A dash separates systemd's levels, so those of the UID are
		// underscores.
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

// ContainerID is the ID in the name of a container's cgroup, the last element of
// its path: what follows the last dash of a systemd scope, else the name.
func ContainerID(name string) string {
	if unit, ok := strings.CutSuffix(name, ".scope"); ok {
		return unit[strings.LastIndexByte(unit, '-')+1:]
	}
	return name
}

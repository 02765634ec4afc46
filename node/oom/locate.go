package oom

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Locate finds the pod and the container in the path of a cgroup, be it of
// the cgroupfs driver (/kubepods/burstable/pod<uid>/<id>) or of systemd
// (/kubepods.slice/.../kubepods-burstable-pod<uid>.slice/cri-containerd-<id>.scope),
// below whatever root, and be the path one of a cgroup within the container.
// Both are "" if the path leads into no pod.
func Locate(path string) (pod types.UID, container string) {
	inPods := false
	for part := range strings.SplitSeq(path, "/") {
		switch {
		case part == "" || part == ".":
		case pod != "":
			return pod, containerID(part)
		case !inPods:
			inPods = isPodsRoot(part)
		default:
			pod = podUID(part)
		}
	}
	return pod, ""
}

// isPodsRoot tells whether a name is that of the cgroup above all pods. With
// systemd it may have parents in its name: a-b-kubepods.slice.
func isPodsRoot(name string) bool {
	if unit, ok := strings.CutSuffix(name, ".slice"); ok {
		return unit == "kubepods" || strings.HasSuffix(unit, "-kubepods")
	}
	return name == "kubepods"
}

// podUID is the UID in the name of a pod's cgroup, or "".
func podUID(name string) types.UID {
	if unit, ok := strings.CutSuffix(name, ".slice"); ok {
		// A dash separates systemd's levels, so those of the UID are
		// underscores.
		last := unit[strings.LastIndexByte(unit, '-')+1:]
		uid, ok := strings.CutPrefix(last, "pod")
		if !ok {
			return ""
		}
		return types.UID(strings.ReplaceAll(uid, "_", "-"))
	}
	uid, ok := strings.CutPrefix(name, "pod")
	if !ok {
		return ""
	}
	return types.UID(uid)
}

// containerID is the id in the name of a container's cgroup: what follows the
// last dash of a systemd scope, else the name.
func containerID(name string) string {
	if unit, ok := strings.CutSuffix(name, ".scope"); ok {
		return unit[strings.LastIndexByte(unit, '-')+1:]
	}
	return name
}

package oom

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/podcgroup"
)

// locate finds the pod and the container in the path of a cgroup, be it of
// the cgroupfs driver (/kubepods/burstable/pod<uid>/<id>) or of systemd
// (/kubepods.slice/.../kubepods-burstable-pod<uid>.slice/cri-containerd-<id>.scope),
// below whatever root, and be the path one of a cgroup within the container.
// Both are "" if the path leads into no pod.
func locate(path string) (pod types.UID, container string) {
	uid, container := podcgroup.Locate(path)
	return types.UID(uid), container
}

package oom

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/podcgroup"
)

// locate returns the pod and the container of a cgroup path, below any root: of the cgroupfs
// driver (/kubepods/burstable/pod<uid>/<id>) or of systemd
// (/kubepods.slice/.../kubepods-burstable-pod<uid>.slice/cri-containerd-<id>.scope). The path
// may be that of a cgroup within the container. Both are "" for a path outside of pods.
func locate(path string) (pod types.UID, container string) {
	uid, container := podcgroup.Locate(path)
	return types.UID(uid), container
}

package part

import (
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmgr"
)

// Publisher is a Part that shows the statuses of pods under other objects. An
// agent has at most one.
type Publisher interface {
	// PublishAs returns the object under which a pod's status goes to the sink;
	// false if there is none yet. It reads memory only.
	PublishAs(pod *v1.Pod) (*v1.Pod, bool)
}

// MirrorWatcher is a Part that follows the pods that stand in a cluster for
// static ones.
type MirrorWatcher interface {
	// MirrorChanged takes a change of a mirror pod, on the loop. It must not
	// block. Without such a part mirrors are ignored.
	MirrorChanged(op podmgr.Op, mirror *v1.Pod)
}

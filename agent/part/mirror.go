package part

import (
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmgr"
)

// Publisher is a Part that publishes the statuses of pods under other objects, such as
// mirrors. An agent has at most one.
type Publisher interface {
	// PublishAs returns the object under which a pod's status is published. It returns false if
	// there is no such object now. It reads memory only.
	PublishAs(pod *v1.Pod) (*v1.Pod, bool)
}

// MirrorWatcher is a Part that follows mirror pods. Without one, mirror pods are ignored.
type MirrorWatcher interface {
	// MirrorChanged is called on the loop for each change of a mirror pod. It must not
	// block.
	MirrorChanged(op podmgr.Op, mirror *v1.Pod)
}

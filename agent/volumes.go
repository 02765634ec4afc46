package agent

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/volumemgr"
)

// Volumes makes a pod's volumes ready on the node and takes them down again.
// A *volumemgr.Manager is one. What a value can do beside is in interfaces of their
// own: [VolumeRunner], [VolumeWatcher], [VolumeMeasurer] and [VolumeExplainer].
// Whoever means a value to be one of these says so to the compiler:
//
//	var _ agent.VolumeRunner = (*Mine)(nil)
type Volumes interface {
	// Mount makes every volume of pod ready, and returns those that are with
	// the errors of the others.
	Mount(ctx context.Context, pod *v1.Pod) (volumemgr.Mounts, error)
	// Unmount takes down whatever is mounted for the pod of that UID and
	// removes what it kept, the content of emptyDir volumes included.
	Unmount(ctx context.Context, uid types.UID) error
	// Remove is Unmount, and removes the pod's directory.
	Remove(ctx context.Context, uid types.UID) error
	// Sweep says that all pods are known, and removes what is left of others.
	Sweep(ctx context.Context, known func(types.UID) bool) error
}

// VolumeRunner is a [Volumes] with work of its own. Run blocks until ctx ends.
type VolumeRunner interface {
	Run(ctx context.Context) error
}

// VolumeWatcher is a [Volumes] that keeps what is mounted up to date with the objects
// that pods refer to. Changed does not block.
type VolumeWatcher interface {
	Changed(r volumemgr.Ref)
}

// VolumeMeasurer is a [Volumes] that knows the usage of a pod's volumes. Stats may
// take as long as its ctx allows. Volumes without a usage of their own are left
// out.
type VolumeMeasurer interface {
	Stats(ctx context.Context, uid types.UID) ([]volumemgr.Stats, error)
}

// VolumeExplainer is a [Volumes] that can say why a pod waits for some.
type VolumeExplainer interface {
	Why(uid types.UID) []volumemgr.Status
}

// runVolumes runs the volumes until ctx ends.
func (a *Agent) runVolumes(ctx context.Context) error {
	if v, ok := a.volumes.(VolumeRunner); ok {
		return v.Run(ctx)
	}
	return nil
}

// wantedEvents are those of the volumes of pods that somebody wants and that have not
// ended. What a pod refers to may go with it, before its volumes do: that they cannot
// be made again is no news.
type wantedEvents struct{ *Agent }

func (w wantedEvents) Event(pod *v1.Pod, eventType, reason, message string) {
	if is, wanted := w.pods.Pod(pod.UID); wanted && !podmeta.IsTerminal(is.Status.Phase) {
		w.events.Event(pod, eventType, reason, message)
	}
}

package agent

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/volumemgr"
)

// Volumes mounts and unmounts the volumes of pods; *volumemgr.Manager implements it. Optional
// methods are in the interfaces [VolumeRunner], [VolumeWatcher], [VolumeMeasurer],
// [VolumeExplainer] and [VolumeChecker]. An implementation can assert that it has one at compile time:
//
//	var _ agent.VolumeRunner = (*Mine)(nil)
type Volumes interface {
	// Mount mounts all volumes of pod. It returns the mounted ones, and the errors of the others.
	Mount(ctx context.Context, pod *v1.Pod) (volumemgr.Mounts, error)
	// Unmount unmounts all volumes of the pod with that UID, and removes their data, including
	// the content of emptyDir volumes.
	Unmount(ctx context.Context, uid types.UID) error
	// Remove is Unmount, and also removes the pod's directory.
	Remove(ctx context.Context, uid types.UID) error
	// Sweep removes everything of pods for which known returns false. It is called when all pods
	// are known.
	Sweep(ctx context.Context, known func(types.UID) bool) error
}

// VolumeRunner is a [Volumes] with background work. Run blocks until ctx ends.
type VolumeRunner interface {
	Run(ctx context.Context) error
}

// VolumeWatcher is a [Volumes] that updates mounted volumes when objects that pods refer to change.
// Changed does not block.
type VolumeWatcher interface {
	Changed(r volumemgr.Ref)
}

// VolumeMeasurer is a [Volumes] that measures the usage of a pod's volumes. Stats may take as long
// as its ctx allows. Volumes that are not measured separately are left out.
type VolumeMeasurer interface {
	Stats(ctx context.Context, uid types.UID) ([]volumemgr.Stats, error)
}

// VolumeExplainer is a [Volumes] that can say why a pod waits for its volumes.
type VolumeExplainer interface {
	Why(uid types.UID) []volumemgr.Status
}

// VolumeChecker is a [Volumes] that can check a pod's volumes without a change. Check returns an
// error for each volume that could not be mounted now.
type VolumeChecker interface {
	Check(ctx context.Context, pod *v1.Pod) []*volumemgr.Error
}

// runVolumes runs the volumes until ctx ends.
func (a *Agent) runVolumes(ctx context.Context) error {
	if v, ok := a.volumes.(VolumeRunner); ok {
		return v.Run(ctx)
	}
	return nil
}

// wantedEvents passes on volume events only for pods that are wanted and have not ended. The
// objects of other pods may be deleted before their volumes are unmounted; errors about this are
// not reported as events.
type wantedEvents struct{ *Agent }

func (w wantedEvents) Event(pod *v1.Pod, eventType, reason, message string) {
	if is, wanted := w.pods.Pod(pod.UID); wanted && !podmeta.IsTerminal(is.Status.Phase) {
		w.events.Event(pod, eventType, reason, message)
	}
}

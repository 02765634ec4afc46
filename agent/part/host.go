package part

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/podworker"
	"github.com/nodewright/nodewright/record"
	"github.com/nodewright/nodewright/volumemgr"
)

// Host is the agent as its parts call it. Its methods may be called from any goroutine and from
// any hook, and do not block unless they take a ctx. Pods are shared and read-only.
type Host interface {
	Pods
	Runtime
	// Resync requests a sync of the pod. It reports whether the pod has a worker.
	Resync(uid types.UID) bool
	// Retry is Resync, but first ends the back-offs of failed creations and starts of
	// the pod: their cause may be gone. Crash-loop back-offs continue.
	Retry(uid types.UID)
	// Readmit repeats the admission of all waiting pods at once.
	Readmit()
	// Housekeep requests a call of every [Housekeeper], as after resources were
	// released.
	Housekeep()
	// Event records an event of a pod, and NodeEvent one of the node.
	// Annotations may be nil.
	Event(pod *v1.Pod, annotations map[string]string, eventType, reason, message string)
	NodeEvent(eventType, reason, message string)
	// End terminates a pod and returns when its containers are proven to have
	// stopped. The pod's status shows the cause from the call on.
	End(ctx context.Context, pod *v1.Pod, cause podlife.Cause) error
}

// Pods has the calls of a [Host] for pods.
type Pods interface {
	// Pods lists the pods that the sources want. Pod returns one of them.
	Pods() []*v1.Pod
	Pod(uid types.UID) (*v1.Pod, bool)
	// ActivePods lists the pods that hold or will hold resources of the node, with
	// the resources allocated to them.
	ActivePods() []*v1.Pod
	// Status returns a copy of a pod's last computed status.
	Status(uid types.UID) (v1.PodStatus, bool)
	// Phase returns the phase of Status without a copy, for loops over all pods.
	Phase(uid types.UID) (v1.PodPhase, bool)
	// Worker returns the status of a pod's worker.
	Worker(uid types.UID) (podworker.Status, bool)
	// AllReady reports whether every source has delivered its pods. The channel of
	// Settled is closed when the loop has noticed this.
	AllReady() bool
	Settled() <-chan struct{}
	// Want returns whether the sources want a pod, and how certain that is.
	Want(uid types.UID) podmgr.Want
	// Dir returns the agent's directory for the files of a pod.
	Dir(uid types.UID) string
}

// Runtime has the calls of a [Host] for the state of pods in the runtime.
type Runtime interface {
	// Listed is closed after the first list of the runtime's sandboxes and containers.
	Listed() <-chan struct{}
	// RuntimePods lists the pods that the runtime knows.
	RuntimePods() []observed.Listed
	// Observed returns the last observation of a pod, and how complete it is. Observe
	// makes a new one.
	Observed(uid types.UID) observed.View
	Observe(ctx context.Context, uid types.UID) (*observed.Pod, error)
}

// These interfaces have further calls for single parts of this module. The agent's Host
// implements all of them. A part gets one by a type assertion in Join.
type (
	// Resizes is for a part that changes the allocated resources of running pods.
	Resizes interface {
		// CheckResize returns the reason and message of the condition PodResizePending if a
		// running pod cannot be resized now. current is the pod as it runs, and wanted the pod
		// with the requested resources. The reason is "" if the resize is possible. detail is the
		// value of a metric's label if the resize will never be possible.
		CheckResize(current, wanted *v1.Pod) (reason, message, detail string)
		// Update passes the pod with its newly allocated resources to its worker.
		Update(pod *v1.Pod)
	}
	// Mirrors is for a part that creates and deletes mirrors of static pods.
	Mirrors interface {
		PodByName(namespace, name string) (*v1.Pod, bool)
		Mirror(namespace, name string) (*v1.Pod, bool)
		Mirrors() []*v1.Pod
		// Terminating reports whether a static pod of that full name is terminating.
		Terminating(fullName string) bool
		// Republish publishes a pod's status after its mirror was created or replaced.
		// Reconcile publishes it if another writer changed the mirror's status.
		Republish(uid types.UID)
		Reconcile(pod *v1.Pod)
		// Life returns the current life of a pod (podlife.Life). Its mirror has the
		// number of the life.
		Life(pod *v1.Pod) podlife.Life
	}
	// Claims is for a part that prepares the ResourceClaims of the sources.
	Claims interface {
		ResourceClaims(namespace string) map[string]*resourceapi.ResourceClaim
	}
	// Records is for a part that passes facts to the agent's Recorders; see [Record].
	Records interface {
		Record(e record.Entry)
	}
	// VolumeMeter is for a part that reports what volumes use.
	VolumeMeter interface {
		// VolumeStats measures the volumes of a pod. If some cannot be measured, it returns the
		// others together with an error. It returns none if the agent does not measure volumes.
		VolumeStats(ctx context.Context, uid types.UID) ([]volumemgr.Stats, error)
	}
	// Storage is for a part that provides volumes.
	Storage interface {
		// Secrets returns the Secrets of a namespace by name. Claim and Volume return
		// the object of a name from the sources. All are shared and read-only.
		Secrets(namespace string) map[string]*v1.Secret
		Claim(namespace, name string) (*v1.PersistentVolumeClaim, bool)
		Volume(name string) (*v1.PersistentVolume, bool)
		// VolumesChanged retries the volumes that wait for the object r, and updates
		// volumes with its content.
		VolumesChanged(r volumemgr.Ref)
	}
	// Garbage is for a part that removes images and dead containers.
	Garbage interface {
		// KnownTerminated reports whether a pod's containers are proven to have stopped.
		// ContentRemovable reports whether its directories, logs and dead containers may
		// be removed.
		KnownTerminated(uid types.UID) bool
		ContentRemovable(uid types.UID) bool
		// PruneImages drops the pull records of images that are not in present and were
		// not seen after the time since.
		PruneImages(ctx context.Context, present []string, since time.Time) error
	}
)

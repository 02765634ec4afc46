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
	"github.com/nodewright/nodewright/volumemgr"
)

// Host is what a part may ask of its agent. Its methods may be called from any
// goroutine and from any hook, and do not block unless they take a ctx. Pods are
// shared and read-only.
type Host interface {
	Pods
	Runtime
	// Resync has the pod's worker look at it soon. It reports whether there is
	// one.
	Resync(uid types.UID) bool
	// Retry is Resync, and drops the pod's back-offs: what it lacked may be
	// there now.
	Retry(uid types.UID)
	// Readmit asks again, at once, about the pods that wait to be admitted.
	Readmit()
	// Housekeep has the loop compare what is wanted with what there is, soon:
	// something was given back.
	Housekeep()
	// Event records an event of a pod, and NodeEvent one of the node.
	// Annotations may be nil.
	Event(pod *v1.Pod, annotations map[string]string, eventType, reason, message string)
	NodeEvent(eventType, reason, message string)
	// End ends a pod and returns when its containers are proven to have
	// stopped. The pod's statuses show the cause from now on.
	End(ctx context.Context, pod *v1.Pod, why podlife.Cause) error
}

// Pods is the part of a [Host] about pods.
type Pods interface {
	// Pods lists the pods that the sources want, and Pod returns one of them.
	Pods() []*v1.Pod
	Pod(uid types.UID) (*v1.Pod, bool)
	// ActivePods are those that hold or will hold resources of the node, with
	// the resources that they have been allocated.
	ActivePods() []*v1.Pod
	// Status is a pod's status as last computed.
	Status(uid types.UID) (v1.PodStatus, bool)
	// Phase is that of Status. It copies nothing, for those who ask about every pod.
	Phase(uid types.UID) (v1.PodPhase, bool)
	// Worker is what a pod's worker does.
	Worker(uid types.UID) (podworker.Status, bool)
	// AllReady reports whether every source has spoken; Settled is closed when
	// the agent has taken notice of that.
	AllReady() bool
	Settled() <-chan struct{}
	// Want is what the sources say of a pod, and how certain that is.
	Want(uid types.UID) podmgr.Want
	// Dir is where the agent keeps the files of a pod.
	Dir(uid types.UID) string
}

// Runtime is the part of a [Host] about what the runtime shows.
type Runtime interface {
	// Listed is closed when the runtime has been listed.
	Listed() <-chan struct{}
	// RuntimePods lists the pods that the runtime knows.
	RuntimePods() []observed.Listed
	// Observed is what was seen of a pod last, and how well. Observe looks again.
	Observed(uid types.UID) observed.View
	Observe(ctx context.Context, uid types.UID) (*observed.Pod, error)
}

// The interfaces below are what single parts of this module need beyond a
// [Host]. The agent's Host has them all; a part asserts what it needs in Join.
type (
	// Resizes is for a part that allocates other resources to pods that run.
	Resizes interface {
		// CheckResize reports why a pod may not have what it asks for: a reason
		// of the condition PodResizePending, or "". Detail is a word that
		// metrics count by where it may never have it.
		CheckResize(has, asks *v1.Pod) (reason, message, detail string)
		// Update hands the pod to its worker as it has been allocated now.
		Update(pod *v1.Pod)
	}
	// Mirrors is for a part that keeps mirrors of static pods.
	Mirrors interface {
		PodByName(namespace, name string) (*v1.Pod, bool)
		Mirror(namespace, name string) (*v1.Pod, bool)
		Mirrors() []*v1.Pod
		// Terminating reports whether a pod of that full name is ending.
		Terminating(fullName string) bool
		// Republish hands a pod's status to the sink again, Reconcile if the
		// sink shows another one.
		Republish(uid types.UID)
		Reconcile(pod *v1.Pod)
	}
	// Claims is for a part that prepares the ResourceClaims of the sources.
	Claims interface {
		ResourceClaims(namespace string) map[string]*resourceapi.ResourceClaim
	}
	// VolumeMeter is for a part that reports what volumes use.
	VolumeMeter interface {
		// VolumeStats measures the volumes of a pod; what could be measured is
		// there beside an error. There are none if the agent's volumes are not
		// measured.
		VolumeStats(ctx context.Context, uid types.UID) ([]volumemgr.Stats, error)
	}
	// Storage is for a part that makes volumes.
	Storage interface {
		// Secrets are those of a namespace by name, Claim and Volume what the
		// sources have of these names; all are shared and read-only.
		Secrets(namespace string) map[string]*v1.Secret
		Claim(namespace, name string) (*v1.PersistentVolumeClaim, bool)
		Volume(name string) (*v1.PersistentVolume, bool)
		// VolumesChanged has volumes go on that wait for an object, or show it.
		VolumesChanged(r volumemgr.Ref)
	}
	// Garbage is for a part that removes images and dead containers.
	Garbage interface {
		// KnownTerminated reports whether a pod's containers have stopped for
		// good, ContentRemovable whether all that is left of it may go.
		KnownTerminated(uid types.UID) bool
		ContentRemovable(uid types.UID) bool
		// PruneImages drops what is recorded of images that are not present and
		// were not seen since.
		PruneImages(ctx context.Context, present []string, since time.Time) error
	}
)

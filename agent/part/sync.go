package part

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/podspec"
)

// Compiler is a Part that adds to the configuration of a pod for the runtime.
type Compiler interface {
	// Compile adds to in. It is called in the pod's worker before each start of
	// containers and reads memory only. in may be changed; pods and objects that it
	// refers to are shared and read-only.
	Compile(pod *v1.Pod, in *podspec.Input) error
}

// Container identifies a container that is created or started.
type Container struct {
	Pod  *v1.Pod // shared and read-only
	Name string
}

// Creator is a Part that acts around the creation of containers.
type Creator interface {
	// BeforeCreate is called in the pod's worker directly before CreateContainer. It may change
	// conf, and may block until ctx ends. If BeforeCreate fails, the container is not created in
	// this sync. created may be nil; otherwise it is called with the container's ID, or with the
	// error of CreateContainer.
	BeforeCreate(ctx context.Context, c Container, conf *runtimeapi.ContainerConfig) (created func(id string, err error), err error)
}

// ContainerWatcher is a Part that follows the containers of pods.
type ContainerWatcher interface {
	// ContainerStarted is called in the pod's worker after the runtime has started a
	// container. ContainerRemoved is called after it has removed one. They must not
	// block.
	ContainerStarted(c Container, id string)
	ContainerRemoved(id string)
}

// PullWatcher is a Part that follows pods that wait for their images.
type PullWatcher interface {
	// PullBegan is called, from any goroutine, when a pod begins to wait for an image pull. ended
	// may be nil; otherwise it is called when the wait is over, whether the pull succeeded or
	// failed. Both must not block.
	PullBegan(pod *v1.Pod) (ended func())
}

// Reporter is a Part that adds to the status of pods.
type Reporter interface {
	// Report adds to st, which may be changed. It reads memory only.
	Report(pod *v1.Pod, st *v1.PodStatus)
}

// Holder is a Part that removes dead containers and images.
type Holder interface {
	// Hold waits for running removals of the pod's containers, and prevents further
	// ones until release is called. The agent calls Hold before every call of a pod's
	// worker, and release after it. Observations of the pod from before since are out
	// of date.
	Hold(ctx context.Context, uid types.UID) (since time.Time, release func(), err error)
	// HoldImage calls ensure, which provides an image and returns its ID, and protects
	// the image from removal until the pod's release. It calls ensure again if the
	// image was removed before it was protected.
	HoldImage(ctx context.Context, uid types.UID, image string, ensure func(context.Context) (id string, err error)) error
	// KeepDead returns how many dead instances of each container a sync must keep for
	// this part; a negative number means all. It is called once, by agent.New.
	KeepDead() int
}

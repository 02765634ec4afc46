package part

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/podspec"
)

// Compiler is a Part that adds to what the runtime is told of a pod.
type Compiler interface {
	// Compile adds to in, which is the caller's own, in the pod's worker before
	// each start of containers. It reads memory only. Pods and objects that in
	// refers to are shared and read-only.
	Compile(pod *v1.Pod, in *podspec.Input) error
}

// Container is one container that is being made.
type Container struct {
	Pod  *v1.Pod // shared and read-only
	Name string
}

// Creator is a Part that acts around the creation of containers.
type Creator interface {
	// BeforeCreate is called in the pod's worker right before the runtime is
	// asked to create a container. It may change conf, and may block until ctx
	// ends; an error keeps the container from being made this time. created, if
	// it is not nil, is called with the container's ID, or with the error of its
	// creation.
	BeforeCreate(ctx context.Context, c Container, conf *runtimeapi.ContainerConfig) (created func(id string, err error), err error)
}

// ContainerWatcher is a Part that follows the containers of pods.
type ContainerWatcher interface {
	// ContainerStarted is called in the pod's worker after the runtime has
	// started a container, ContainerRemoved after it has removed one. Neither
	// may block.
	ContainerStarted(c Container, id string)
	ContainerRemoved(id string)
}

// PullWatcher is a Part that follows pods that wait for their images.
type PullWatcher interface {
	// PullBegan is called, from any goroutine, when a pod begins to wait for an
	// image that has to be pulled; ended, if it is not nil, when that is over,
	// whatever came of it. Neither may block.
	PullBegan(pod *v1.Pod) (ended func())
}

// Reporter is a Part that adds to the status of pods.
type Reporter interface {
	// Report adds to st, which is the caller's own. It reads memory only.
	Report(pod *v1.Pod, st *v1.PodStatus)
}

// Holder is a Part that removes what is left of pods: dead containers, images.
type Holder interface {
	// Hold waits until nothing of a pod is being removed, and keeps it so until
	// release is called. It brackets every call of a pod's worker. Observations
	// of the pod that are older than since are out of date.
	Hold(ctx context.Context, uid types.UID) (since time.Time, release func(), err error)
	// HoldImage calls ensure, which makes an image ready and returns its ID,
	// until the image it named stays for as long as the pod is held.
	HoldImage(ctx context.Context, uid types.UID, image string, ensure func(context.Context) (id string, err error)) error
	// KeepDead is how many dead instances of a container a sync leaves for this
	// part; below 0, all. It is asked once, by agent.New.
	KeepDead() int
}

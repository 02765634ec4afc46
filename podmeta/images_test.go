package podmeta_test

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmeta"
)

func TestMissingImages(t *testing.T) {
	p := &v1.Pod{}
	p.Spec.InitContainers = []v1.Container{{Name: "i", Image: "first"}}
	p.Spec.Containers = []v1.Container{{Name: "a", Image: "second"}, {Name: "b", Image: "second"}, {Name: "c", Image: "third"}, {Name: "d", Image: "fourth"}}
	waits := func(name, reason string) v1.ContainerStatus {
		return v1.ContainerStatus{Name: name, State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}}
	}
	if got := podmeta.MissingImages(p); got != nil {
		t.Errorf("without a status: %q", got)
	}
	p.Status.InitContainerStatuses = []v1.ContainerStatus{waits("i", "ErrImagePull")}
	p.Status.ContainerStatuses = []v1.ContainerStatus{
		waits("a", "ImagePullBackOff"), waits("b", "ErrImageNeverPull"), waits("c", "CrashLoopBackOff"),
		{Name: "d", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}},
	}
	if got, want := podmeta.MissingImages(p), []string{"first", "second"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

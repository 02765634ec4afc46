package resources_test

import (
	"context"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/resources"
	"github.com/nodewright/nodewright/cri/observed"
)

// full is the little of an agent that this example needs: a node that has no
// room.
type full struct {
	part.Host
	part.Resizes
}

func (full) AllReady() bool { return true }

func (full) CheckResize(_, _ *v1.Pod) (reason, message, detail string) {
	return v1.PodReasonDeferred, "not enough memory", ""
}

func (full) Event(_ *v1.Pod, _ map[string]string, eventType, reason, message string) {
	fmt.Println(eventType, reason, message)
}

func (full) Resync(types.UID) bool { return true }

// A resize waits until the node has room.
func Example_resize() {
	dir, err := os.MkdirTemp("", "allocations")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	p, err := resources.NewResize(resources.ResizeConfig{Store: part.OpenStore(dir, nil)})
	if err == nil {
		err = p.Join(full{}) // agent.New does it, and agent.Run the rest
	}
	if err == nil {
		err = p.Restore(context.Background())
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "42"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
	pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}
	p.Recall(pod, &observed.Pod{UID: pod.UID})

	asks := pod.DeepCopy()
	asks.Spec.Containers[0].Resources.Requests[v1.ResourceMemory] = resource.MustParse("2Gi")
	has := p.Changed(asks)
	fmt.Println("it runs with", has.Spec.Containers[0].Resources.Requests.Memory())
	fmt.Println("it waits for", p.Explain(asks))
	// Output:
	// Warning ResizeDeferred not enough memory
	// it runs with 1Gi
	// it waits for its resources (PodResizePending Deferred not enough memory)
}

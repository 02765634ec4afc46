package lifecycle_test

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/lifecycle"
)

// printer is a cluster that only says what it would do.
type printer struct{}

func (printer) Ensure(_ context.Context, pod, _ *v1.Pod) error {
	fmt.Println("mirror of", pod.Name)
	return nil
}

func (printer) Remove(_ context.Context, mirror *v1.Pod) error {
	fmt.Println("no mirror of", mirror.Name)
	return nil
}

// The part goes into agent.Config.Parts, and the agent calls its hooks.
func Example() {
	p, err := lifecycle.NewMirrors(lifecycle.MirrorsConfig{API: printer{}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("part", p.Name())

	// The status of a pod that is not static goes to the pod itself.
	pod := &v1.Pod{}
	shown, ok := p.PublishAs(pod)
	fmt.Println(shown == pod, ok)
	// Output:
	// part mirrors
	// true true
}

package resources_test

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/resources"
	"github.com/nodewright/nodewright/numa"
)

// podResourcesAgent stands for the agent that the part is in.
type podResourcesAgent struct {
	part.Host // of which the rest is not asked
}

func (podResourcesAgent) ActivePods() []*v1.Pod    { return []*v1.Pod{pod("web")} }
func (podResourcesAgent) Pods() []*v1.Pod          { return []*v1.Pod{pod("web")} }
func (podResourcesAgent) Settled() <-chan struct{} { return nil }

// placed says that every container has the CPUs 2 and 3.
type placed struct{}

func (placed) Exclusive(types.UID, string) numa.CPUSet { return numa.CPUs(2, 3) }
func (placed) Allocatable() numa.CPUSet                { return numa.CPUs(1, 2, 3) }

func Example_podResources() {
	p, err := resources.NewPodResources(resources.PodResourcesConfig{Socket: "/run/agent/pod-resources.sock", CPUs: placed{}})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := p.Join(podResourcesAgent{}); err != nil { // podResourcesAgent.New does it
		fmt.Println(err)
		return
	}
	fmt.Println("shows", p.ActivePods()[0].Name)
	// Calls wait while no source has spoken.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	fmt.Println("ran:", p.Run(ctx))
	// Output:
	// shows web
	// ran: <nil>
}

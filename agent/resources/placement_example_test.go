package resources_test

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/resources"
	"github.com/nodewright/nodewright/cpumgr"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/podspec"
)

// agent stands for the agent that the part is in.
type agent struct {
	part.Host // of which the rest is not asked
}

func (agent) Readmit() {}

// A node with eight CPUs gives a pod two for its own.
func Example_placement() {
	p, err := resources.NewPlacement(resources.PlacementConfig{
		Fit: fit.PlacementConfig{
			Machine: numa.Uniform(1, 1, 8, 1, 4<<30), CPUPolicy: fit.CPUStatic,
			ReservedCPUs: cpumgr.Reservation{CPUs: numa.CPUs(0)},
		},
		Runtime: critest.New(), // a *cri.Client
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	// What follows is done by the agent that the part is given to.
	ctx := context.Background()
	if err := p.Join(agent{}); err != nil {
		fmt.Println(err)
		return
	}
	if err := p.Restore(ctx); err != nil {
		fmt.Println(err)
		return
	}
	for _, pod := range []*v1.Pod{owns("db", "2"), shares("web"), owns("big", "6")} {
		if _, rejection := p.Reserve(ctx, part.Request{Pod: pod}); rejection != nil {
			fmt.Println(pod.Name, "is rejected:", rejection)
			continue
		}
		if err := p.Prepare(ctx, pod, nil); err != nil {
			fmt.Println(err)
			continue
		}
		var in podspec.Input
		if err := p.Compile(pod, &in); err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(pod.Name, "runs on CPUs", in.Pinned[pod.Name].CPUs)
	}
	// Output:
	// db runs on CPUs 1-2
	// web runs on CPUs 0,3-7
	// big is rejected: UnexpectedAdmissionError: Allocate failed due to container "big": 6 CPUs requested, but 5 are free (5 on node 0; 5 whole cores), which is unexpected
}

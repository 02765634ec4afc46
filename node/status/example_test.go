package status_test

import (
	"fmt"
	"net/netip"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/node/status"
)

func ExampleApply() {
	in := status.Inputs{
		Addressing: status.Addressing{Hostname: "edge-1", Default4: netip.MustParseAddr("10.0.0.2")},
		MaxPods:    110,
		Facts: status.Facts{Capacity: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("8Gi"),
		}},
		Reserved:     v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")},
		DiskPressure: true,
	}
	edge := &v1.Node{}
	edge.Name = "edge-1"
	events, err := status.Apply(edge, &in, &status.Seen{}, time.Now())
	fmt.Println(err, edge.Status.Allocatable.Memory(), edge.Status.Addresses[0].Address)
	for _, e := range events {
		fmt.Println(e.Message)
	}
	// Output:
	// <nil> 7Gi 10.0.0.2
	// Node edge-1 status is now: NodeHasSufficientMemory
	// Node edge-1 status is now: NodeHasDiskPressure
	// Node edge-1 status is now: NodeHasSufficientPID
}

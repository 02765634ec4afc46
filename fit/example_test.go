package fit_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cpumgr"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/topology"
)

// guaranteed is a pod with one container and as much as it asks for.
func guaranteed(name, cpu, memory string) *v1.Pod {
	asks := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name: "main", Resources: v1.ResourceRequirements{Requests: asks, Limits: asks},
		}}},
	}
}

// A simulation: a pod takes CPUs and devices of a node, ends and gives them back.
func ExampleNode_Without() {
	machine := numa.Uniform(2, 1, 8, 2, 64<<30)
	placement, err := fit.NewPlacement(fit.PlacementConfig{
		Machine: machine, CPUPolicy: fit.CPUStatic, ReservedCPUs: cpumgr.Reservation{MilliCPU: 2000}, TopologyPolicy: topology.NameSingleNUMANode,
	})
	if err != nil {
		panic(err)
	}
	allocatable := v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("30"), v1.ResourceMemory: resource.MustParse("120Gi"), v1.ResourcePods: resource.MustParse("110"),
		"example.com/gpu": resource.MustParse("2"),
	}
	node := &fit.Node{
		Allocatable: allocatable, Placement: &placement, Machine: machine, Devices: fit.Devices{"example.com/gpu": {1: {Total: 2, Free: 2}}},
	}
	pod := func(name string) *v1.Pod {
		p := guaranteed(name, "8", "16Gi")
		p.Namespace = "default"
		p.Spec.Containers[0].Resources.Limits["example.com/gpu"] = resource.MustParse("2") // requests too: it is the same list
		return p
	}
	train, next := pod("train"), pod("next")
	result, rejection := fit.Admit(node, train, nil)
	busy := node.After(train, result)
	fmt.Println(rejection, result.Containers[0].CPUs, busy.Devices)

	_, rejection = fit.Admit(busy, next, []*v1.Pod{train})
	fmt.Println(rejection.Reason)

	idle := busy.Without(train.UID)
	_, rejection = fit.Admit(idle, next, nil)
	fmt.Println(rejection, idle.Devices)
	// Output:
	// <nil> 8-11,24-27 map[example.com/gpu:map[1:{2 0}]]
	// OutOfexample.com/gpu
	// <nil> map[example.com/gpu:map[1:{2 2}]]
}

// A scheduler asks three nodes where they would place a pod, and learns of those
// that cannot why. Nothing is taken by asking.
func ExampleFit() {
	machine := numa.Uniform(2, 1, 8, 2, 64<<30) // two NUMA nodes with 8 cores each
	empty, err := fit.NewPlacement(fit.PlacementConfig{
		Machine: machine, CPUPolicy: fit.CPUStatic, ReservedCPUs: cpumgr.Reservation{MilliCPU: 2000},
		MemoryPolicy:   memmgr.StaticName,
		ReservedMemory: memmgr.Reserved{0: {memmgr.Memory: 1 << 30}},
		TopologyPolicy: topology.NameSingleNUMANode,
	})
	if err != nil {
		panic(err)
	}
	pod := guaranteed("new", "12", "16Gi")
	for _, n := range []struct {
		name string
		runs []*v1.Pod
	}{
		{"red", []*v1.Pod{guaranteed("a", "8", "8Gi"), guaranteed("b", "10", "8Gi")}},
		{"green", []*v1.Pod{guaranteed("c", "14", "8Gi")}},
		{"blue", []*v1.Pod{guaranteed("d", "1", "56Gi"), guaranteed("e", "1", "56Gi")}},
	} {
		node := empty
		for _, p := range n.runs {
			r, err := fit.Fit(node, p)
			if err != nil {
				panic(err)
			}
			node.State = r.State
		}
		r, err := fit.Fit(node, pod)
		if err != nil {
			fmt.Printf("%s: %v\n", n.name, err)
			continue
		}
		for _, c := range r.Containers {
			fmt.Printf("%s: container %s on CPUs %s, memory of NUMA node %s\n", n.name, c.Name, c.CPUs, c.Nodes)
		}
	}
	// Output:
	// red: Resources cannot be allocated with Topology locality: container main: cpu can be served only from NUMA nodes 0-1, none of which it prefers
	// green: container main on CPUs 8-13,24-29, memory of NUMA node 1
	// blue: Resources cannot be allocated with Topology locality: container main: memory cannot be served from any NUMA nodes
}

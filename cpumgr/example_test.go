package cpumgr_test

import (
	"fmt"

	"github.com/nodewright/nodewright/cpumgr"
	"github.com/nodewright/nodewright/numa"
)

// Pinning without an agent: the pods of a machine are placed by hand, and the
// steps say what to write into which cpuset, in which order.
func Example() {
	machine := numa.Uniform(2, 1, 4, 2, 64<<30) // 2 nodes of 4 cores of 2 threads
	static, err := cpumgr.NewStatic(machine, cpumgr.Reservation{MilliCPU: 1500}, cpumgr.Options{FullPCPUsOnly: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	pod := numa.Pod{UID: "db", Guaranteed: true, Containers: []numa.Container{
		{Name: "postgres", Resources: numa.Resources{MilliCPU: 4000, Bound: true}},
		{Name: "exporter", Resources: numa.Resources{MilliCPU: 100, Bound: true}},
	}}
	state := static.Start()
	for i, c := range pod.Containers {
		var hint numa.Hint
		if hints := static.Hints(state, pod, i); !hints.Any && len(hints.List) > 0 {
			hint = hints.List[0] // where a topology manager would choose
		}
		next, err := static.Allocate(state, pod, i, hint)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, step := range cpumgr.Diff(state, next) {
			if step.Pod == "" {
				fmt.Println("all others move to", step.CPUs)
			} else {
				fmt.Printf("%s/%s moves to %s\n", step.Pod, step.Container, step.CPUs)
			}
		}
		fmt.Println(c.Name, "starts on", next.Wanted(pod.UID, c.Name))
		state = next
	}
	_, err = static.Allocate(state, numa.Pod{UID: "big", Guaranteed: true, Containers: []numa.Container{
		{Name: "all", Resources: numa.Resources{MilliCPU: 12000, Bound: true}},
	}}, 0, numa.Hint{})
	fmt.Println(err)
	// Output:
	// all others move to 0,3-8,11-15
	// db/postgres moves to 1-2,9-10
	// postgres starts on 1-2,9-10
	// exporter starts on 0,3-8,11-15
	// container "all": 12 CPUs requested in whole cores, but the free cores have 10 CPUs (2 on node 0, 8 on node 1)
}

// nodeZero is a policy that puts databases next to the network card.
type nodeZero struct{ *cpumgr.Static }

func (p nodeZero) Allocate(s cpumgr.State, pod numa.Pod, container int, hint numa.Hint) (cpumgr.State, error) {
	if container != cpumgr.WholePod && pod.Containers[container].Name == "postgres" {
		hint.Nodes = numa.Nodes(0)
	}
	return p.Static.Allocate(s, pod, container, hint)
}

// A policy of one's own may build upon the static one.
func ExamplePolicy() {
	static, _ := cpumgr.NewStatic(numa.Uniform(2, 1, 4, 2, 64<<30), cpumgr.Reservation{MilliCPU: 1000}, cpumgr.Options{})
	var policy cpumgr.Policy = nodeZero{static}
	pod := numa.Pod{UID: "db", Guaranteed: true, Containers: []numa.Container{{Name: "postgres", Resources: numa.Resources{MilliCPU: 2000}}}}
	state, err := policy.Allocate(policy.Start(), pod, 0, numa.Hint{Nodes: numa.Nodes(1)})
	fmt.Println(state.Exclusive("db", "postgres"), err)
	// Output:
	// 1,9 <nil>
}

// What runs keeps its CPUs when an agent starts without its files: the live
// cpusets tell.
func ExampleRebuild() {
	machine := numa.Uniform(1, 1, 4, 2, 64<<30)
	static, _ := cpumgr.NewStatic(machine, cpumgr.Reservation{MilliCPU: 1000}, cpumgr.Options{})
	two := []numa.Container{{Name: "app", Resources: numa.Resources{MilliCPU: 2000, Bound: true}}}
	pods := []numa.Pod{{UID: "a", Guaranteed: true, Containers: two}, {UID: "b", Guaranteed: true, Containers: two}}
	state, problems := cpumgr.Rebuild(static, pods, map[string]map[string]numa.CPUSet{
		"a": {"app": numa.CPUs(2, 6)},
		"b": {"app": numa.CPUs(6, 7)},
	})
	fmt.Println("a has", state.Exclusive("a", "app"), "and others", state.Shared())
	for _, p := range problems {
		fmt.Println(p)
	}
	// Output:
	// a has 2,6 and others 0-1,3-5,7
	// pod b, container "app": CPUs "6-7": CPUs 6 are those of pod a
}

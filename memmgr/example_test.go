package memmgr_test

import (
	"fmt"

	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
)

// The example finds the node that would provide this pod's memory.
func Example() {
	machine := numa.Uniform(2, 1, 8, 2, 64<<30)
	reserved, err := memmgr.Spread(machine, map[memmgr.Resource]uint64{memmgr.Memory: 4 << 30})
	if err != nil {
		fmt.Println(err)
		return
	}
	policy, err := memmgr.NewStatic(memmgr.Config{Machine: machine, Reserved: reserved})
	if err != nil {
		fmt.Println(err)
		return
	}
	pod := func(uid string, memory uint64) numa.Pod {
		return numa.Pod{UID: uid, Guaranteed: true, Containers: []numa.Container{{
			Name: "app", Resources: numa.Resources{MilliCPU: 2000, Memory: memory, Bound: true},
		}}}
	}
	var state memmgr.State
	for _, p := range []numa.Pod{pod("database", 48<<30), pod("cache", 24<<30), pod("index", 100<<30)} {
		hints := policy.Hints(state, p, 0)
		for _, h := range hints.List {
			fmt.Printf("%s: nodes %s would do, preferred: %t\n", p.UID, h.Nodes, h.Preferred)
		}
		next, err := policy.Allocate(state, p, 0, numa.Hint{}) // no other resource has a say
		if err != nil {
			fmt.Println(err)
			continue
		}
		state = next
		fmt.Printf("%s: memory comes from nodes %s\n", p.UID, state.Nodes(p.UID, "app"))
	}
	// Output:
	// database: nodes 0 would do, preferred: true
	// database: nodes 1 would do, preferred: true
	// database: nodes 0-1 would do, preferred: false
	// database: memory comes from nodes 0
	// cache: nodes 1 would do, preferred: true
	// cache: memory comes from nodes 1
	// container app of pod index: no NUMA nodes have enough memory: asked for memory 107374182400; node 0 (serves 0) memory free 15032385536, reserved 2147483648 of 68719476736; node 1 (serves 1) memory free 40802189312, reserved 2147483648 of 68719476736
}

// An agent starts with a file that is damaged.
func ExampleStatic_Rebuild() {
	policy, err := memmgr.NewStatic(memmgr.Config{
		Machine:  numa.Uniform(2, 1, 8, 2, 64<<30),
		Reserved: memmgr.Reserved{0: {memmgr.Memory: 4 << 30}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	state, err := memmgr.State{}.DecodePod("db", policy.Name(), []byte(`{"version":1,"pol`))
	fmt.Println(err)

	db := numa.Pod{UID: "db", Guaranteed: true, Containers: []numa.Container{{
		Name: "app", Resources: numa.Resources{MilliCPU: 2000, Memory: 48 << 30, Bound: true},
	}}}
	state, problems := policy.Rebuild(state, []numa.Pod{db}, map[string]map[string]numa.NodeSet{
		"db": {"app": numa.Nodes(1)}, // cpuset.mems of the container that runs
	})
	fmt.Println(state.Blocks("db", "app"), problems)
	// Output:
	// saved memory of pod db: unexpected EOF
	// [{1 {memory 51539607552}}] []
}

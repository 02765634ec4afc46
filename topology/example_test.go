package topology_test

import (
	"errors"
	"fmt"

	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/topology"
)

// gpus is a resource manager of the simplest kind: GPUs that are free, by NUMA
// node. A real one is fitted in the same way.
type gpus struct {
	free map[int]int
	want int
}

func (g gpus) Hints(int) []numa.Hints {
	h := numa.Hints{Resource: "example.com/gpu"}
	for _, node := range []int{0, 1} {
		if g.free[node] >= g.want {
			h.List = append(h.List, numa.Hint{Nodes: numa.Nodes(node), Preferred: true})
		}
	}
	if both := g.free[0] + g.free[1]; both >= g.want {
		h.List = append(h.List, numa.Hint{Nodes: numa.Nodes(0, 1)})
	}
	return []numa.Hints{h}
}

func (g gpus) Allocate(_ int, hint numa.Hint) (topology.Provider, error) {
	left := gpus{free: map[int]int{0: g.free[0], 1: g.free[1]}}
	for node := range hint.Nodes.All() {
		took := min(g.want, left.free[node])
		left.free[node] -= took
		g.want -= took
	}
	if g.want > 0 {
		return nil, fmt.Errorf("%d GPUs missing", g.want)
	}
	return left, nil
}

// A scheduler asks three machines which of them would take a pod with two GPUs
// from one NUMA node. Nothing is taken by asking.
func ExampleManager_Admit() {
	machine := numa.Uniform(2, 1, 32, 2, 256<<30)
	policy, err := topology.NewPolicy(topology.NameSingleNUMANode, machine, topology.Options{})
	if err != nil {
		panic(err)
	}
	m, err := topology.New(topology.Config{Policy: policy})
	if err != nil {
		panic(err)
	}
	pod := numa.Pod{Containers: []numa.Container{{Name: "train"}}}
	for _, node := range []struct {
		name string
		free map[int]int
	}{
		{"red", map[int]int{0: 1, 1: 1}},
		{"green", map[int]int{0: 1, 1: 4}},
		{"blue", map[int]int{0: 1, 1: 0}},
	} {
		decision, err := m.Admit(pod, []topology.Provider{gpus{free: node.free, want: 2}})
		var rejection *topology.Rejection
		if errors.As(err, &rejection) {
			fmt.Printf("%s: %s\n", node.name, rejection.Detail)
			continue
		}
		fmt.Printf("%s: on NUMA node %s, leaving %v\n", node.name, decision.Hints[0].Nodes, decision.Providers[0].(gpus).free)
	}
	// Output:
	// red: container train: example.com/gpu can be served only from NUMA nodes 0-1, none of which it prefers
	// green: on NUMA node 1, leaving map[0:1 1:2]
	// blue: container train: example.com/gpu cannot be served from any NUMA nodes
}

// lastNode is a policy of one's own: it takes the last node that all resources
// can be served from, so that the first ones stay free.
type lastNode struct{ nodes int }

func (p lastNode) Merge(hints []numa.Hints) (numa.Hint, bool) {
	for id := p.nodes - 1; id >= 0; id-- {
		node := numa.Hint{Nodes: numa.Nodes(id), Preferred: true}
		all := true
		for _, h := range hints {
			has := h.Any
			for _, one := range h.List {
				has = has || one == node
			}
			all = all && has
		}
		if all {
			return node, true
		}
	}
	return numa.Hint{}, false
}

func ExamplePolicy() {
	m, err := topology.New(topology.Config{Policy: lastNode{nodes: 2}})
	if err != nil {
		panic(err)
	}
	pod := numa.Pod{Containers: []numa.Container{{Name: "train"}}}
	decision, err := m.Admit(pod, []topology.Provider{gpus{free: map[int]int{0: 4, 1: 4}, want: 2}})
	fmt.Println(decision.Hints[0].Nodes, err)
	// Output: 1 <nil>
}

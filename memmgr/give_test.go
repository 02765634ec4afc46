package memmgr_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
)

// lastNode is a policy of another package: memory always comes from one node.
type lastNode struct{ node int }

func (lastNode) Name() string { return "LastNode" }

func (p lastNode) Hints(memmgr.State, numa.Pod, int) numa.Hints {
	return numa.Hints{Resource: "memory", List: []numa.Hint{{Nodes: numa.Nodes(p.node), Preferred: true}}}
}

func (p lastNode) Allocate(s memmgr.State, pod numa.Pod, container int, hint numa.Hint) (memmgr.State, error) {
	if !hint.Nodes.Has(p.node) {
		return s, errors.New("no")
	}
	bytes := pod.Containers[container].Memory
	return s.Give(pod, container, memmgr.Block{Nodes: numa.Nodes(p.node), Amount: memmgr.Amount{Resource: memmgr.Memory, Bytes: bytes}})
}

func (lastNode) Release(s memmgr.State, podUID, container string) memmgr.State {
	return s.Without(podUID, container)
}

func ExamplePolicy() {
	var p memmgr.Policy = lastNode{7}
	pod := numa.Pod{UID: "db", Containers: []numa.Container{{Name: "app", Resources: numa.Resources{Memory: 1 << 30}}}}
	state, err := p.Allocate(memmgr.State{}, pod, 0, numa.Hint{Nodes: numa.Nodes(6, 7)})
	fmt.Println(state.Nodes("db", "app"), err)
	// Output: 7 <nil>
}

func TestGive(t *testing.T) {
	block := func(r memmgr.Resource, bytes uint64, ids ...int) memmgr.Block {
		return memmgr.Block{Nodes: nodes(ids...), Amount: memmgr.Amount{Resource: r, Bytes: bytes}}
	}
	pod := guaranteed("pod", app("a", 1), app("b", 2))
	for _, tc := range []struct {
		name   string
		at     int
		blocks []memmgr.Block
		want   string
	}{
		{"memory and huge pages", 0, []memmgr.Block{block("hugepages-2Mi", 5, 1), block("memory", 5, 0)}, ""},
		{"as a whole", -1, []memmgr.Block{block("memory", 3*gi, 0)}, ""},
		{"nothing", 0, nil, "blocks is empty"},
		{"no nodes", 0, []memmgr.Block{block("memory", 5)}, "blocks[0].nodes is empty"},
		{"no bytes", 0, []memmgr.Block{block("memory", 0, 1)}, "blocks[0].bytes is 0"},
		{"no resource", 0, []memmgr.Block{block("cpu", 5, 1)}, `blocks[0].resource is "cpu"`},
		{"twice", 0, []memmgr.Block{block("memory", 5, 0), block("memory", 5, 1)}, "blocks[1].resource is memory after memory"},
		{"as a whole, which nobody has a share in", -1, []memmgr.Block{block("hugepages-2Mi", 5, 0)}, "no container"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := memmgr.State{}.Give(pod, tc.at, tc.blocks...)
			if tc.want == "" && (err != nil || s.Nodes("pod", "a") == 0) || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%v, want %q", err, tc.want)
			}
			reload(t, lastNode{}, s)
		})
	}
	s, _ := memmgr.State{}.Give(pod, 0, block("memory", 5, 0))
	s, err := s.Give(pod, 0, block("memory", 6, 1))
	if got := s.Blocks("pod", "a"); err != nil || len(got) != 1 || got[0].Bytes != 6 {
		t.Errorf("a has %v, %v", got, err)
	}
	s, _ = s.Give(pod, -1, block("memory", 3*gi, 0))
	if _, err := s.Give(pod, 0, block("memory", 6, 1)); err == nil || s.Nodes("pod", "b") != nodes(0) {
		t.Errorf("b is on %s, error %v", s.Nodes("pod", "b"), err)
	}
}

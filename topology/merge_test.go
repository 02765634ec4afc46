package topology

import (
	"testing"

	"github.com/nodewright/nodewright/numa"
)

// Rule by rule, the answers of the specification.
func TestMergeCases(t *testing.T) {
	n := numa.Nodes
	p := func(s numa.NodeSet) numa.Hint { return numa.Hint{Nodes: s, Preferred: true} }
	np := func(s numa.NodeSet) numa.Hint { return numa.Hint{Nodes: s} }
	list := func(l ...numa.Hint) numa.Hints { return numa.Hints{List: l} }
	two, four := numa.Uniform(2, 1, 1, 1, 1), numa.Uniform(4, 1, 1, 1, 1)
	near := numa.Uniform(4, 1, 1, 1, 1)
	near.Nodes[0].Distances = []int{10, 12, 11, 11}
	near.Nodes[1].Distances = []int{12, 10, 20, 20}
	near.Nodes[2].Distances = []int{11, 20, 10, 20}
	near.Nodes[3].Distances = []int{11, 20, 20, 10}
	for _, tc := range []struct {
		name   string
		m      numa.Machine
		hints  []numa.Hints
		want   numa.Hint // best-effort and restricted
		single numa.Hint // single-numa-node
	}{
		{"nothing", two, nil, p(n(0, 1)), p(0)},
		{"any", two, []numa.Hints{{Any: true}}, p(n(0, 1)), p(0)},
		{"any hint", two, []numa.Hints{list(p(0))}, p(n(0, 1)), p(0)},
		{"cannot be served", two, []numa.Hints{list()}, np(n(0, 1)), np(0)},
		{"one of two cannot be served", two, []numa.Hints{list(), list(p(n(0)))}, np(n(0)), np(0)},
		{"no overlap", two, []numa.Hints{list(p(n(0))), list(p(n(1)))}, np(n(0, 1)), np(0)},
		{"same, one not preferred", two, []numa.Hints{list(p(n(0))), list(np(n(0)))}, np(n(0)), np(0)},
		{"first of two", two, []numa.Hints{list(p(n(0)), p(n(1))), list(p(n(0)))}, p(n(0)), p(n(0))},
		{"lowest", two, []numa.Hints{list(p(n(0)), p(n(1)), np(n(0, 1))), list(p(n(0)), p(n(1)), np(n(0, 1)))}, p(n(0)), p(n(0))},
		{"wide preferred before narrow", four, []numa.Hints{list(p(n(0, 1)), np(n(0)))}, p(n(0, 1)), np(0)},
		{"no preference and one", two, []numa.Hints{{Any: true}, list(p(n(1)))}, p(n(1)), p(n(1))},
		{"not preferred any", two, []numa.Hints{list(np(0)), list(p(n(1)))}, np(n(1)), np(0)},
		{"all nodes preferred", two, []numa.Hints{list(p(n(0, 1)))}, p(n(0, 1)), np(0)},
		{"subset is not equal", four, []numa.Hints{list(p(n(0, 1))), list(p(n(0)))}, np(n(0)), np(0)},
		{"size needed", four, []numa.Hints{list(p(n(0, 1)), np(n(1, 2, 3))), list(np(n(0)), np(n(1)), np(n(2, 3)))}, np(n(2, 3)), np(0)},
		{"largest below", four, []numa.Hints{list(np(n(0, 1, 2))), list(np(n(0)), np(n(1, 2)))}, np(n(1, 2)), np(0)},
		{"smallest above", four, []numa.Hints{list(np(n(0, 1, 2, 3)), np(n(1, 2, 3)), np(0))}, np(n(1, 2, 3)), np(0)},
		{"in common only", four, []numa.Hints{list(np(n(0, 1, 2))), list(np(n(1, 2, 3)))}, np(n(1, 2)), np(0)},
		{"one node", numa.Uniform(1, 1, 1, 1, 1), []numa.Hints{list(p(n(0)))}, p(n(0)), p(0)},
		{"unknown node", two, []numa.Hints{list(p(n(5)))}, np(n(0, 1)), np(0)},
		{"closest", near, []numa.Hints{list(p(n(0, 1)), p(n(0, 2)))}, p(n(0, 2)), np(0)},
		{"equally close", near, []numa.Hints{list(p(n(0, 3)), p(n(0, 2)))}, p(n(0, 2)), np(0)},
		{"closest not preferred", near, []numa.Hints{list(np(n(0, 1)), np(n(0, 3)))}, np(n(0, 3)), np(0)},
		{"fewer before closer", near, []numa.Hints{list(p(n(0, 1)), p(n(0, 2, 3)))}, p(n(0, 1)), np(0)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for name, want := range map[string]numa.Hint{NameBestEffort: tc.want, NameRestricted: tc.want, NameSingleNUMANode: tc.single} {
				policy, err := NewPolicy(name, tc.m, Options{PreferClosest: true})
				if err != nil {
					t.Fatal(err)
				}
				got, admit := policy.Merge(tc.hints)
				if got != want || admit != (want.Preferred || name == NameBestEffort) {
					t.Errorf("%s: %v, %v; want %v", name, got, admit, want)
				}
			}
		})
	}
}

func TestAverageDistance(t *testing.T) {
	m := numa.Uniform(2, 1, 1, 1, 1)
	m.Nodes[0].Distances, m.Nodes[1].Distances = []int{10, 11}, []int{11, 10}
	o := newOrder(m, true)
	for _, tc := range []struct {
		s    numa.NodeSet
		want int // over the square of the size: 0, 10 and 10.5
	}{{0, 0}, {numa.Nodes(1), 10}, {numa.Nodes(0, 1), 42}} {
		if got := o.total(tc.s); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.s, got, tc.want)
		}
	}
}

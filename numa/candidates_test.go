package numa_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nodewright/nodewright/numa"
)

func ExampleUniform() {
	m := numa.Uniform(2, 1, 2, 2, 64<<30)
	for _, c := range m.CPUs {
		fmt.Printf("CPU %d: core %d, node %d\n", c.ID, c.Core, c.Node)
	}
	// Output:
	// CPU 0: core 0, node 0
	// CPU 1: core 1, node 0
	// CPU 2: core 2, node 1
	// CPU 3: core 3, node 1
	// CPU 4: core 0, node 0
	// CPU 5: core 1, node 0
	// CPU 6: core 2, node 1
	// CPU 7: core 3, node 1
}

func ExampleCandidates() {
	for _, s := range numa.Candidates(numa.Uniform(3, 1, 1, 1, 1<<30)) {
		fmt.Println(s.IDs())
	}
	// Output:
	// [0]
	// [1]
	// [2]
	// [0 1]
	// [0 2]
	// [1 2]
	// [0 1 2]
}

// gpuNodes has CPU nodes 0 and 1, and n nodes behind them that have memory
// alone: half near to node 0, half near to node 1, none near each other.
func gpuNodes(n int) numa.Machine {
	m := numa.Uniform(2, 1, 72, 1, 480<<30)
	side := func(node int) int {
		if node < 2 {
			return node
		}
		return (node - 2) * 2 / n
	}
	m.Nodes = nil
	for i := range n + 2 {
		d := make([]int, n+2)
		for j := range d {
			switch {
			case i == j:
				d[j] = 10
			case i < 2 && j < 2:
				d[j] = 40
			case side(i) == side(j):
				d[j] = 80
			default:
				d[j] = 120
			}
		}
		m.Nodes = append(m.Nodes, numa.Node{ID: i, Memory: 96 << 30, Distances: d})
	}
	return m
}

// On large machines candidates are few, sorted, and closed: what two have in
// common is one too.
func TestCandidatesOfLargeMachines(t *testing.T) {
	flat := numa.Uniform(64, 1, 4, 2, 1<<30)
	for i := range flat.Nodes {
		flat.Nodes[i].Distances = nil
	}
	cxl := numa.Uniform(2, 4, 8, 2, 1<<30) // and four nodes that have memory alone, one that has nothing
	for id := 8; id < 13; id++ {
		cxl.Nodes = append(cxl.Nodes, numa.Node{ID: id * 2, Memory: uint64(id-8) << 30})
	}
	for i := range cxl.Nodes {
		cxl.Nodes[i].Distances = nil
	}
	for _, tc := range []struct {
		name string
		m    numa.Machine
		want []numa.NodeSet
	}{
		{"8 sockets of 8", numa.Uniform(8, 8, 8, 2, 1<<30), []numa.NodeSet{numa.Nodes(63), numa.Nodes(8, 9, 10, 11, 12, 13, 14, 15), numa.Nodes(7, 8)}},
		{"64 sockets", flat, []numa.NodeSet{numa.Nodes(0, 1, 2)}},
		{"GPUs", gpuNodes(32), []numa.NodeSet{numa.Nodes(0, 1), numa.Nodes(1)}},
		{"memory alone", cxl, []numa.NodeSet{numa.Nodes(0, 3, 7), numa.Nodes(16), numa.Nodes(0, 18)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := tc.m.Validate(); err != nil {
				t.Fatal(err)
			}
			got := numa.Candidates(tc.m)
			n := len(tc.m.Nodes)
			if len(got) > 2*n*(n+1)+n+1+3*255 {
				t.Errorf("%d candidates for %d nodes", len(got), n)
			}
			has := map[numa.NodeSet]bool{0: true}
			for i, s := range got {
				has[s] = true
				if i > 0 && slices.Compare(append([]int{got[i-1].Len()}, got[i-1].IDs()...), append([]int{s.Len()}, s.IDs()...)) >= 0 {
					t.Fatalf("%s comes after %s", s, got[i-1])
				}
			}
			for _, s := range append(tc.want, tc.m.AllNodes()) {
				if !has[s] {
					t.Errorf("%s is no candidate", s)
				}
			}
			for i, s := range got {
				for _, u := range got[i+1:] {
					if !has[s&u] {
						t.Fatalf("%s and %s have %s in common, which is no candidate", s, u, s&u)
					}
				}
			}
		})
	}
}

// Up to 8 nodes there are all sets, of sparse numbers too.
func TestCandidatesOfSmallMachines(t *testing.T) {
	for n := 1; n <= 8; n++ {
		if got := len(numa.Candidates(numa.Uniform(n, 1, 1, 1, 0))); got != 1<<n-1 {
			t.Errorf("%d candidates of %d nodes", got, n)
		}
	}
	sparse := numa.Machine{CPUs: []numa.CPU{{ID: 0}}, Nodes: []numa.Node{{ID: 0}, {ID: 8}, {ID: 63}}}
	want := []numa.NodeSet{numa.Nodes(0), numa.Nodes(8), numa.Nodes(63), numa.Nodes(0, 8), numa.Nodes(0, 63), numa.Nodes(8, 63), numa.Nodes(0, 8, 63)}
	if got := numa.Candidates(sparse); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := numa.Candidates(numa.Machine{}); len(got) != 0 {
		t.Errorf("a machine without nodes has %v", got)
	}
}

// Each socket with its memory is one of the runs, and so are two sockets, for any numbering.
func TestCandidatesFollowDistances(t *testing.T) {
	m := gpuNodes(16)
	near := numa.Nodes(0, 2, 3, 4, 5, 6, 7, 8, 9) // node 0 and its half of 16
	far := m.AllNodes() &^ near
	got := numa.Candidates(m)
	for _, want := range []numa.NodeSet{near, far, near &^ numa.Nodes(0), far &^ numa.Nodes(1), numa.Nodes(0, 1)} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is no candidate", want)
		}
	}

	m = numa.Uniform(12, 1, 4, 1, 1<<30)
	for i := range m.Nodes { // pairs 0 and 6, 1 and 7, ...
		m.Nodes[i].Distances[(i+6)%12] = 15
	}
	if got := numa.Candidates(m); !slices.Contains(got, numa.Nodes(2, 8)) || slices.Contains(got, numa.Nodes(2, 3)) {
		t.Error("pairs do not follow distances")
	}
}

// Memory without CPUs anywhere is no machine, but no reason to panic either.
func TestCandidatesWithoutCPUs(t *testing.T) {
	m := numa.Uniform(12, 1, 1, 1, 1<<30)
	m.CPUs = nil
	if got := numa.Candidates(m); len(got) != 13 {
		t.Errorf("%d candidates", len(got))
	}
}

func TestUniformIsValid(t *testing.T) {
	for _, m := range []numa.Machine{numa.Uniform(1, 1, 1, 1, 0), numa.Uniform(2, 4, 16, 2, 1<<30), numa.Uniform(64, 1, 8, 1, 1)} {
		if err := m.Validate(); err != nil {
			t.Error(err)
		}
	}
	for _, m := range []numa.Machine{numa.Uniform(0, 1, 1, 1, 0), numa.Uniform(65, 1, 1, 1, 0), numa.Uniform(1, 1, 0, 1, 0), numa.Uniform(1, 1, 1, 0, 0)} {
		if m.Validate() == nil {
			t.Errorf("%d nodes, %d CPUs", len(m.Nodes), len(m.CPUs))
		}
	}
}

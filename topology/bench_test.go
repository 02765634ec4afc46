package topology

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/nodewright/nodewright/numa"
)

// busy makes the hints of three providers over all candidates of a machine
// that is partly taken: CPUs and memory that need several nodes, devices that
// need one. They seldom prefer the same nodes.
func busy(m numa.Machine, sets []numa.NodeSet, seed uint64) []numa.Hints {
	r := rand.New(rand.NewPCG(seed, 1))
	const each = 8
	var hints []numa.Hints
	for _, resource := range []string{"example.com/gpu", "cpu", "memory"} {
		var free [numa.MaxNodes]int
		for _, n := range m.Nodes {
			free[n.ID] = each
			if r.IntN(2) == 0 {
				free[n.ID] = r.IntN(each + 1)
			}
		}
		want := 1 + r.IntN(each)
		if resource != "example.com/gpu" {
			want = 1 + r.IntN(each*min(4, len(m.Nodes)))
		}
		h := numa.Hints{Resource: resource}
		least := (want + each - 1) / each
		for _, s := range sets {
			has := 0
			for id := range s.All() {
				has += free[id]
			}
			if has >= want {
				h.List = append(h.List, numa.Hint{Nodes: s, Preferred: s.Len() == least})
			}
		}
		hints = append(hints, h)
	}
	return hints
}

// Three providers, on machines of different sizes. The kubelet takes 11 µs for
// 2 nodes, 0.96 ms for 4, and 4.2 s and 3.2 GB for 8; it refuses more.
func BenchmarkMerge(b *testing.B) {
	for _, closest := range []bool{false, true} {
		for _, n := range []int{2, 4, 8, 16, 34, 64} {
			m := numa.Uniform(2, n/2, 1, 1, 1)
			sets := numa.Candidates(m)
			merger, err := newMerger(m, closest)
			if err != nil {
				b.Fatal(err)
			}
			var cases [][]numa.Hints
			for seed := range uint64(50) {
				if h := busy(m, sets, seed); !merger.Merge(h).Preferred { // the hard ones
					cases = append(cases, h)
				}
			}
			b.Run(fmt.Sprintf("closest=%v/nodes=%d", closest, n), func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					merger.Merge(cases[i%len(cases)])
				}
			})
		}
	}
}

// All that can be wrong at once: no hint is preferred, and all lists are full.
func BenchmarkMergeFullLists(b *testing.B) {
	for _, n := range []int{8, 64} {
		m := numa.Uniform(2, n/2, 1, 1, 1)
		merger, err := newMerger(m, false)
		if err != nil {
			b.Fatal(err)
		}
		var hints []numa.Hints
		for i := range 3 {
			h := numa.Hints{}
			for _, s := range numa.Candidates(m) {
				if i < s.Len() {
					h.List = append(h.List, numa.Hint{Nodes: s})
				}
			}
			hints = append(hints, h)
		}
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				merger.Merge(hints)
			}
		})
	}
}

// Sets at random, of a policy or a provider that does not use candidates: the
// search ends at its bound.
func BenchmarkMergeRandomSets(b *testing.B) {
	for _, closest := range []bool{false, true} {
		for _, n := range []int{16, 64} {
			m := numa.Uniform(2, n/2, 1, 1, 1)
			merger, err := newMerger(m, closest)
			if err != nil {
				b.Fatal(err)
			}
			r := rand.New(rand.NewPCG(1, 2))
			hints := make([]numa.Hints, 3)
			for i := range hints {
				for range 2000 {
					holes := numa.NodeSet(r.Uint64())
					hints[i].List = append(hints[i].List, numa.Hint{Nodes: (holes | numa.NodeSet(r.Uint64())) & merger.all})
				}
			}
			b.Run(fmt.Sprintf("closest=%v/nodes=%d", closest, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					merger.Merge(hints)
				}
			})
		}
	}
}

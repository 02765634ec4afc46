package topology

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nodewright/nodewright/numa"
)

// Both ways of searching find the same, with nothing known beforehand.
func TestSearchesAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 1_000 {
		n := 1 + r.IntN(12)
		all := lowest(^numa.NodeSet(0), n)
		if r.IntN(2) == 0 {
			all = all << r.IntN(50)
		}
		if all == 0 {
			continue
		}
		var lists [][]numa.NodeSet
		for range 1 + r.IntN(12) { // more choices than 64 bits can count
			seen := newSets(1)
			seen.add(all)
			for range r.IntN(100) {
				if s := numa.NodeSet(r.Uint64()) & all; s != 0 {
					seen.add(s)
				}
			}
			lists = append(lists, seen.list())
		}
		want := 1 + r.IntN(n)
		run := func(do func(*search)) numa.NodeSet {
			s := search{best: best{needed: want}, all: all, lists: lists, tops: lists}
			do(&s)
			return s.nodes
		}
		a := run((*search).dense)
		b := run(func(s *search) { s.sparse(unlimited) })
		if a != b {
			t.Fatalf("dense %v, sparse %v of %v, want %d nodes", a, b, lists, want)
		}
	}
}

// A search among many sets that are no candidates ends in time, with an answer
// that some choice has in common.
func TestMergeIsBounded(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	mg, err := newMerger(numa.Uniform(64, 1, 1, 1, 1), true)
	if err != nil {
		t.Fatal(err)
	}
	lists := make([][]numa.NodeSet, 6)
	for i := range lists {
		seen := newSets(1)
		for range 3_000 {
			seen.add(numa.NodeSet(r.Uint64()) | numa.NodeSet(r.Uint64()>>1) | numa.NodeSet(r.Uint64()) | 1)
		}
		lists[i] = seen.list()
	}
	s := search{best: best{order: mg.order, needed: 30}, all: mg.all, lists: lists}
	s.members()
	s.sparse(maxSteps)
	if s.nodes == 0 {
		t.Error("found nothing")
	}
	reach := []numa.NodeSet{s.all}
	for _, l := range lists { // the smallest supersets suffice to show that it is reached
		var next []numa.NodeSet
		for _, m := range l {
			if s.nodes.SubsetOf(m) {
				for _, r := range reach {
					next = append(next, r&m)
				}
			}
		}
		slices.SortFunc(next, func(a, b numa.NodeSet) int { return a.Len() - b.Len() })
		reach = next[:min(len(next), 1000)]
		if len(reach) == 0 {
			t.Fatalf("%s has no superset in a list", s.nodes)
		}
	}
}

func TestPackAndSpread(t *testing.T) {
	all := numa.Nodes(0, 3, 8, 63)
	for packed := range uint64(16) {
		if got := pack(spread(packed, all.IDs()), all); got != packed {
			t.Errorf("%b became %b", packed, got)
		}
	}
	if got := pack(numa.Nodes(3, 63), all); got != 0b1010 {
		t.Errorf("%b", got)
	}
}

// With candidates the search does not reach its limit: on 64 nodes it finds the same as an
// unlimited search. Lists may lack sets, like those of providers with their own rules.
func TestMergeOfCandidates(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	m := numa.Uniform(8, 8, 1, 1, 1)
	candidates := numa.Candidates(m)
	for i := range 20 {
		o := newOrder(m, i%2 == 0)
		var lists [][]numa.NodeSet
		want := 0
		for range 2 + r.IntN(3) {
			const each = 8
			var free [numa.MaxNodes]int
			for id := range free {
				free[id] = r.IntN(each + 1)
			}
			need, share := 1+r.IntN(each*len(free)/4), r.Float64()+0.3
			var l []numa.NodeSet
			least := len(free)
			for _, s := range candidates {
				has := 0
				for id := range s.All() {
					has += free[id]
				}
				if has >= need && r.Float64() < share {
					l = append(l, s)
					least = min(least, s.Len())
				}
			}
			slices.Sort(l)
			lists, want = append(lists, l), max(want, least)
		}
		got := common(m.AllNodes(), slices.Clone(lists), o, want)
		s := search{best: best{order: o, needed: want}, all: m.AllNodes(), lists: lists}
		s.members()
		s.sparse(unlimited)
		if got != s.nodes {
			t.Errorf("%s, want %s", got, s.nodes)
		}
	}
}

// A set that can be reached in 2⁶⁴ ways is reached all the same.
func TestCountsDoNotOverflow(t *testing.T) {
	all := numa.Nodes(0, 1, 2)
	lists := [][]numa.NodeSet{{numa.Nodes(0)}}
	for range 64 {
		lists = append(lists, []numa.NodeSet{numa.Nodes(0, 1), numa.Nodes(0, 2)})
	}
	s := search{best: best{needed: 1}, all: all, lists: lists}
	s.dense()
	if s.nodes != numa.Nodes(0) {
		t.Errorf("found %q", s.nodes)
	}
}

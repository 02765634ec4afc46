package topology

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/nodewright/nodewright/numa"
)

// exhaustive merges as the kubelet does: through the whole cross product, the
// last list varying fastest, each candidate compared with the one kept so far.
func exhaustive(m numa.Machine, closest bool, lists [][]numa.Hint) numa.Hint {
	all := m.AllNodes()
	want := 0
	for _, l := range lists {
		least := 0
		for _, h := range l {
			if n := h.Nodes.Len(); n > 0 && (least == 0 || n < least) {
				least = n
			}
		}
		want = max(want, least)
	}
	known := map[numa.NodeSet]float64{0: 0}
	average := func(s numa.NodeSet) float64 {
		if a, ok := known[s]; ok {
			return a
		}
		var sum, pairs float64
		for from := range s.All() {
			n, _ := m.Node(from)
			for i, to := range m.Nodes {
				if s.Has(to.ID) {
					sum += float64(n.Distances[i])
					pairs++
				}
			}
		}
		known[s] = sum / pairs
		return known[s]
	}
	narrower := func(current, candidate numa.NodeSet) numa.NodeSet {
		switch {
		case current == candidate:
			return current
		case closest && current.Len() == candidate.Len() && average(current) != average(candidate):
			if average(candidate) < average(current) {
				return candidate
			}
			return current
		case candidate.Narrower(current):
			return candidate
		}
		return current
	}
	better := func(current *numa.Hint, candidate numa.Hint) numa.Hint {
		if candidate.Nodes == 0 {
			if current == nil {
				return numa.Hint{}
			}
			return *current
		}
		if current == nil || current.Nodes == 0 {
			return candidate
		}
		if current.Preferred != candidate.Preferred {
			if current.Preferred {
				return *current
			}
			return candidate
		}
		byMask := numa.Hint{Nodes: narrower(current.Nodes, candidate.Nodes), Preferred: current.Preferred}
		if current.Preferred {
			return byMask
		}
		c, d := current.Nodes.Len(), candidate.Nodes.Len()
		switch {
		case c > want:
			return byMask
		case c == want:
			if d != want {
				return *current
			}
			return byMask
		case d > want:
			return *current
		case d == want:
			return candidate
		case d > c:
			return candidate
		case d < c:
			return *current
		}
		return byMask
	}
	var found *numa.Hint
	choice := make([]numa.Hint, len(lists))
	var walk func(i int)
	walk = func(i int) {
		if i < len(lists) {
			for _, h := range lists[i] {
				choice[i] = h
				walk(i + 1)
			}
			return
		}
		joined := numa.Hint{Nodes: all, Preferred: true}
		var first numa.NodeSet
		for _, h := range choice {
			joined.Preferred = joined.Preferred && h.Preferred
			if h.Nodes == 0 {
				continue
			}
			if first == 0 {
				first = h.Nodes
			}
			joined.Preferred = joined.Preferred && h.Nodes == first
			joined.Nodes &= h.Nodes
		}
		if h := better(found, joined); h.Nodes != 0 {
			found = &h
		}
	}
	walk(0)
	if found == nil {
		return numa.Hint{Nodes: all}
	}
	return *found
}

// instance is a machine and what its resources say.
type instance struct {
	m       numa.Machine
	closest bool
	merger  *Merger
	hints   []numa.Hints
}

// someMachine has up to n nodes, with gaps in their numbers if there is room,
// and few different distances.
func someMachine(t *testing.T, r *rand.Rand, n int) instance {
	t.Helper()
	n = 1 + r.IntN(n)
	in := instance{m: numa.Uniform(n, 1, 1, 1, 1), closest: r.IntN(3) == 0}
	id := -1
	for i := range in.m.Nodes {
		id++
		if n <= 16 {
			id += r.IntN(3)
		}
		in.m.Nodes[i].ID, in.m.CPUs[i].Node = id, id
		for j := range in.m.Nodes {
			if i != j {
				in.m.Nodes[i].Distances[j] = 11 + r.IntN(1+r.IntN(4))
			}
		}
	}
	var err error
	if in.merger, err = NewMerger(in.m, in.closest); err != nil {
		t.Fatal(err)
	}
	return in
}

// say makes up what the resources say, with about as many choices as choices.
func (in *instance) say(r *rand.Rand, choices int) {
	all, n := in.m.AllNodes(), len(in.m.Nodes)
	in.hints = in.hints[:0]
	left := choices
	for k := range r.IntN(5) {
		h := numa.Hints{Resource: strconv.Itoa(k)}
		switch r.IntN(12) {
		case 0:
			h.Any = true
		case 1: // cannot be served
		default:
			long := 1 + r.IntN(max(1, min(left, 1+r.IntN(1<<min(n, 8)))))
			left /= long
			least := 1 + r.IntN(n)
			for range long {
				var s numa.NodeSet
				switch r.IntN(4) {
				case 0:
					s = numa.NodeSet(r.Uint64()) & all
				case 1:
					holes := numa.NodeSet(r.Uint64())
					s = (holes | numa.NodeSet(r.Uint64())) & all
				case 2:
					s = numa.Nodes(in.m.Nodes[r.IntN(n)].ID, in.m.Nodes[r.IntN(n)].ID)
				default:
					s = lowest(all, least+r.IntN(n-least+1))
				}
				switch r.IntN(40) {
				case 0: // any
					s = 0
				case 1: // a node that the machine may not have
					s = s.With(numa.MaxNodes - 1)
				}
				h.List = append(h.List, numa.Hint{Nodes: s, Preferred: s.Len() <= least && r.IntN(3) > 0})
			}
		}
		in.hints = append(in.hints, h)
	}
}

func (in *instance) check(t *testing.T) numa.Hint {
	t.Helper()
	lists := make([][]numa.Hint, len(in.hints))
	for i, h := range in.hints {
		lists[i] = choices(h)
	}
	got := in.merger.Merge(in.hints)
	if want := exhaustive(in.m, in.closest, lists); got != want {
		t.Fatalf("%v, want %v\nclosest %v, nodes %v\nhints %v", got, want, in.closest, in.m.Nodes, in.hints)
	}
	return got
}

// The merge gives the answer of the exhaustive one: 150,000 times, on 7,500
// machines of up to 8 nodes with up to 4 resources.
func TestMergeIsExhaustive(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	preferred, joined := 0, 0
	for range 7_500 {
		in := someMachine(t, r, 8)
		for range 20 {
			in.say(r, 60)
			switch got := in.check(t); {
			case got.Preferred:
				preferred++
			case got.Nodes != in.m.AllNodes():
				joined++
			}
		}
	}
	if preferred < 10_000 || joined < 30_000 {
		t.Errorf("only %d preferred, %d joined: the instances are too easy", preferred, joined)
	}
}

// With longer lists, and with more nodes, it is the same: up to 16 nodes there
// is no limit to the search, beyond that these instances do not reach it.
func TestMergeOfLongLists(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		for _, size := range []struct{ nodes, choices int }{{8, 50_000}, {16, 20_000}, {64, 5_000}} {
			in := someMachine(t, r, size.nodes)
			in.say(r, size.choices)
			in.check(t)
		}
	}
}

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
			s := search{best: best{want: want}, all: all, lists: lists, tops: lists}
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
	mg, err := NewMerger(numa.Uniform(64, 1, 1, 1, 1), true)
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
	s := search{best: best{order: mg.order, want: 30}, all: mg.all, lists: lists}
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

func FuzzMerge(f *testing.F) {
	f.Add(uint64(1), uint64(2), uint8(8))
	f.Add(uint64(3), uint64(4), uint8(20))
	f.Fuzz(func(t *testing.T, a, b uint64, n uint8) {
		r := rand.New(rand.NewPCG(a, b))
		in := someMachine(t, r, 1+int(n)%24)
		in.say(r, 2_000)
		in.check(t)
	})
}

// Where hints are about candidates, the bound of the search is not met: it
// finds on 64 nodes what a search without bound finds. Lists may lack sets, as
// those of providers with rules of their own do.
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
		s := search{best: best{order: o, want: want}, all: m.AllNodes(), lists: lists}
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
	s := search{best: best{want: 1}, all: all, lists: lists}
	s.dense()
	if s.nodes != numa.Nodes(0) {
		t.Errorf("found %q", s.nodes)
	}
}

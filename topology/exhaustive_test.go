package topology

import (
	"math/rand/v2"
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
	merger  *merger
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
	if in.merger, err = newMerger(in.m, in.closest); err != nil {
		t.Fatal(err)
	}
	return in
}

// say creates random hints of the resources, with about choices choices.
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
